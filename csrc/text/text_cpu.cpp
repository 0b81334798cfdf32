// Text files of columns: where their fields stand, and the numbers in them.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "common/parallel.h"

namespace text {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kStretch = 1 << 20;  // bytes, at least
constexpr int64_t kGrain = 1 << 14;    // numbers that are worth a thread

inline bool blank(uint8_t c) { return c <= ' '; }

// A stretch of whole lines: the fields that are kept of each, begin and end; lines without any field are passed over.
struct Stretch {
  int64_t begin, end;
  int64_t lines = 0;              // line breaks in it
  int64_t wrong = 0, fields = 0;  // of the first line with another number of fields, which one, from 1
  std::vector<int64_t> places{};  // (rows, kept, 2)

  void split(const uint8_t* data, int64_t columns, const std::vector<bool>& kept) {
    int64_t here = begin, count = 0;
    const auto fits = [&] {
      if (count == 0 || count == columns) return true;
      wrong = lines + 1, fields = count;
      return false;
    };
    while (here < end) {
      while (here < end && blank(data[here])) {
        if (data[here++] != '\n') continue;
        if (!fits()) return;
        ++lines, count = 0;
      }
      if (here == end) break;
      const int64_t first = here;
      while (here < end && !blank(data[here])) ++here;
      if (count < columns && kept[count]) places.push_back(first), places.push_back(here);
      ++count;
    }
    fits();
  }
};

std::vector<Stretch> stretches(const uint8_t* data, int64_t bytes) {
  std::vector<Stretch> found;
  for (int64_t begin = 0; begin < bytes;) {
    const auto* line_end = static_cast<const uint8_t*>(
        begin + kStretch < bytes ? std::memchr(data + begin + kStretch, '\n', bytes - begin - kStretch) : nullptr);
    const int64_t end = line_end ? line_end - data + 1 : bytes;
    found.push_back({begin, end});
    begin = end;
  }
  return found;
}

Tensor of(const Tensor& like, std::initializer_list<int64_t> sizes) {
  return torch::stable::new_empty(like, std::vector<int64_t>(sizes), ScalarType::Long);
}

// (bytes,) uint8, whole lines of `columns` fields, of which `kept` are asked for  ->  (kept, rows, 2) int64, and (2,)
// int64: the number of the first line that does not fit, from 1, and how many fields it has; 0, 0 if all do.
std::tuple<Tensor, Tensor> split_columns(Tensor data, int64_t columns, std::vector<int64_t> kept) {
  const auto* bytes = static_cast<const uint8_t*>(data.data_ptr());
  std::vector<bool> asked(columns);
  for (const int64_t column : kept) asked[column] = true;
  std::vector<Stretch> parts = stretches(bytes, data.size(0));
  common::in_parallel("split_columns", parts.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parts[i].split(bytes, columns, asked);
  });
  const int64_t width = kept.size();
  Tensor wrong = of(data, {2});
  auto* told = static_cast<int64_t*>(wrong.data_ptr());
  told[0] = told[1] = 0;
  int64_t lines = 0, rows = 0;
  for (const Stretch& part : parts) {
    if (part.wrong && !told[0]) told[0] = lines + part.wrong, told[1] = part.fields;
    lines += part.lines, rows += part.places.size() / (2 * width);
  }
  if (told[0]) return {of(data, {width, 0, 2}), wrong};
  Tensor places = of(data, {width, rows, 2});
  auto* place = static_cast<int64_t*>(places.data_ptr());
  for (const Stretch& part : parts) {
    const int64_t n = part.places.size() / (2 * width);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < width; ++k) std::copy_n(&part.places[2 * (i * width + k)], 2, place + 2 * (k * rows + i));
    place += 2 * n;
  }
  return {places, wrong};
}

// A decimal number as Python reads it; false if the field holds none.
bool read(const uint8_t* begin, const uint8_t* end, double& value) {
  const char *first = reinterpret_cast<const char*>(begin), *last = reinterpret_cast<const char*>(end);
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  const auto [stop, error] = std::from_chars(first, last, value);
  if (error == std::errc::result_out_of_range)  // infinity or 0
    value = std::strtod(std::string(first, last).c_str(), nullptr);
  else if (error != std::errc())
    return false;
  return stop == last && *(last - 1) != ')';  // of nan(...), which is no number to Python
}

// (bytes,) uint8, (n, 2) int64 contiguous  ->  (n,) float64, (n,) bool: which are no numbers
std::tuple<Tensor, Tensor> numbers_of_fields(Tensor data, Tensor places) {
  const int64_t n = places.size(0);
  Tensor values = torch::stable::new_empty(data, {n}, ScalarType::Double);
  Tensor wrong = torch::stable::new_empty(data, {n}, ScalarType::Bool);
  const auto* bytes = static_cast<const uint8_t*>(data.data_ptr());
  const auto* place = static_cast<const int64_t*>(places.data_ptr());
  auto* value = static_cast<double*>(values.data_ptr());
  auto* bad = static_cast<bool*>(wrong.data_ptr());
  common::in_parallel("numbers_of_fields", n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      value[i] = 0;
      bad[i] = !read(bytes + place[2 * i], bytes + place[2 * i + 1], value[i]);
    }
  });
  return {values, wrong};
}

// (bytes,) uint8, (n, 2) int64 contiguous  ->  (n, width) int64: the bytes of each field, and 0 behind them
Tensor words_of_fields(Tensor data, Tensor places, int64_t width) {
  const int64_t n = places.size(0);
  Tensor words = of(data, {n, width});
  const auto* bytes = static_cast<const uint8_t*>(data.data_ptr());
  const auto* place = static_cast<const int64_t*>(places.data_ptr());
  auto* word = static_cast<uint8_t*>(words.data_ptr());
  common::in_parallel("words_of_fields", n, kGrain, [&](int64_t begin, int64_t end) {
    std::memset(word + 8 * width * begin, 0, 8 * width * (end - begin));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t length = std::min(place[2 * i + 1] - place[2 * i], 8 * width);
      std::memcpy(word + 8 * width * i, bytes + place[2 * i], length);
    }
  });
  return words;
}

}  // namespace text

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("split_columns", TORCH_BOX(&text::split_columns));
  m.impl("numbers_of_fields", TORCH_BOX(&text::numbers_of_fields));
  m.impl("words_of_fields", TORCH_BOX(&text::words_of_fields));
}
