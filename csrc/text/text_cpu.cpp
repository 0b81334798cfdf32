// Text files of columns: positions of their fields, and the numbers in them.
#include <locale.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"

namespace text {

using common::data, common::ScalarType, common::Tensor;

constexpr int64_t kMaxColumns = 1 << 24;
constexpr int64_t kGrain = 1 << 14;  // numbers or lines that justify a thread

inline bool is_blank(uint8_t c) { return c <= ' '; }

inline uint64_t eight_bytes(const uint8_t* bytes) {
  uint64_t chunk;
  std::memcpy(&chunk, bytes, 8);
  return chunk;
}

// Returns the end of the field at `position`: eight bytes at a time, the highest bit of each is whether it is above ' '.
inline int64_t field_end(const uint8_t* data, int64_t position, int64_t end) {
  for (; position + 8 <= end; position += 8) {
    const uint64_t chunk = eight_bytes(data + position);
    const uint64_t above = ((chunk & 0x7F7F7F7F7F7F7F7F) + 0x5F5F5F5F5F5F5F5F) | chunk;
    if (const uint64_t blank = ~above & 0x8080808080808080) return position + __builtin_ctzll(blank) / 8;
  }
  while (position < end && !is_blank(data[position])) ++position;
  return position;
}

inline int64_t field_begin(const uint8_t* data, int64_t position, int64_t end) {
  while (position < end && is_blank(data[position])) ++position;
  return position;
}

// Returns the begin of each line, then the end of the last; lines without fields belong to the one before if they are skipped.
std::vector<int64_t> line_begins(const uint8_t* data, int64_t size, bool skip) {
  std::vector<int64_t> begins;
  for (int64_t begin = 0; begin < size;) {
    const auto* line_end = static_cast<const uint8_t*>(std::memchr(data + begin, '\n', size - begin));
    const int64_t next = line_end ? line_end - data + 1 : size;
    if (!skip || field_begin(data, begin, next) < next) begins.push_back(begin);
    begin = next;
  }
  begins.push_back(size);
  return begins;
}

Tensor new_int64(const Tensor& like, std::initializer_list<int64_t> sizes) {
  Tensor tensor = torch::stable::new_empty(like, std::vector<int64_t>(sizes), ScalarType::Long);
#ifdef MADV_HUGEPAGE  // otherwise large tensors take longer to map than to write
  constexpr uintptr_t kPage = 1 << 21;
  const auto first = reinterpret_cast<uintptr_t>(data<int64_t>(tensor)), aligned = (first + kPage - 1) & -kPage;
  const uintptr_t last = (first + 8 * tensor.numel()) & -kPage;
  if (aligned < last) madvise(reinterpret_cast<void*>(aligned), last - aligned, MADV_HUGEPAGE);
#endif
  return tensor;
}

// (bytes,) uint8, complete lines of `columns` fields; `selected` selects fields  ->  (selected, rows, 2) int64 positions, and (2,)
// int64: number, from 1, and field count of the first wrong line; 0, 0 if all lines are valid.
std::tuple<Tensor, Tensor> split_columns(Tensor file, int64_t columns, std::vector<int64_t> selected) {
  common::check("split_columns", "data: uint8 B", file);
  const auto* bytes = data<const uint8_t>(file);
  common::check_integer("split_columns", "columns", columns, 1, kMaxColumns);
  STD_TORCH_CHECK(!selected.empty() && selected[0] >= 0 && selected.back() < columns &&
                      std::adjacent_find(selected.begin(), selected.end(), std::greater_equal<>()) == selected.end(),
                  "split_columns: wanted some of ", columns, " columns, ascending");
  const std::vector<int64_t> begins = line_begins(bytes, file.size(0), true);
  const int64_t width = selected.size(), rows = begins.size() - 1;
  Tensor spans = new_int64(file, {width, rows, 2}), wrong = new_int64(file, {2});
  std::vector<int64_t*> bounds(columns);  // null for columns that are not selected
  for (int64_t k = 0; k < width; ++k) bounds[selected[k]] = data<int64_t>(spans) + 2 * rows * k;
  std::atomic<int64_t> first_wrong{rows};
  // Returns the number of fields, the positions of which are written.
  const auto split = [&](int64_t row) {
    int64_t count = 0;
    const int64_t end = begins[row + 1];
    for (int64_t position = begins[row]; (position = field_begin(bytes, position, end)) < end; ++count) {
      const int64_t first = position;
      position = field_end(bytes, position, end);
      if (count < columns && bounds[count]) bounds[count][2 * row] = first, bounds[count][2 * row + 1] = position;
    }
    return count;
  };
  common::in_parallel("split_columns", rows, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end && split(begin) == columns) ++begin;
    for (int64_t other = first_wrong; begin < end && begin < other && !first_wrong.compare_exchange_weak(other, begin);) {}
  });
  auto* line = data<int64_t>(wrong);
  line[0] = line[1] = 0;
  if (first_wrong == rows) return {spans, wrong};
  line[0] = 1 + std::count(bytes, bytes + begins[first_wrong], '\n'), line[1] = split(first_wrong);
  return {new_int64(file, {width, 0, 2}), wrong};
}

// Checks that all fields lie within the bytes.
void check_spans(const char* operation, const Tensor& file, const Tensor& spans) {
  common::check(operation, "data: uint8 B, spans: int64 N 2", file, spans);
  const auto* bounds = data<const int64_t>(spans);
  const int64_t n = spans.size(0), bytes = file.size(0);
  bool wrong = false;
  for (int64_t i = 0; i < n; ++i)
    wrong |= bounds[2 * i] < 0 || bounds[2 * i] > bounds[2 * i + 1] || bounds[2 * i + 1] > bytes;
  STD_TORCH_CHECK(!wrong, operation, ": got spans outside of 0 to ", bytes, ", or that end before they begin");
}

constexpr double kTens[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16};

// Returns the number of leading digits in the next eight bytes, and their value. All eight are processed at once, the last
// in the highest byte: neighbors are joined to numbers of two, four and eight digits.
COMMON_INLINE inline int read_eight(const uint8_t* bytes, uint64_t& digits) {
  uint64_t chunk = eight_bytes(bytes) ^ 0x3030303030303030;
  const uint64_t non_digits = (((chunk & 0x7F7F7F7F7F7F7F7F) + 0x7676767676767676) | chunk) & 0x8080808080808080;
  const int count = non_digits ? __builtin_ctzll(non_digits) / 8 : 8;
  chunk = count ? chunk << (64 - 8 * count) : 0;
  chunk = chunk * 10 + (chunk >> 8);
  const uint64_t upper = (chunk & 0x000000FF000000FF) * (100 + (uint64_t{1000000} << 32));
  const uint64_t lower = (chunk >> 16 & 0x000000FF000000FF) * (1 + (uint64_t{10000} << 32));
  digits = (upper + lower) >> 32;
  return count;
}

constexpr int64_t kShort = 26;  // bytes: a sign, eight digits, the point, and two times eight

// Reads up to seven digits, and a point with up to 16 digits, the form in most files; kShort bytes must be readable. If the
// digits as an integer and the power of ten are exact in float64, their quotient is the float64 nearest to the number.
// Returns the end of the digits, or null if they are not, or for other numbers.
COMMON_INLINE inline const uint8_t* read_short(const uint8_t* first, double& value) {
  const bool negative = *first == '-';
  first += negative;
  uint64_t digits = static_cast<uint8_t>(*first - '0'), more;
  int count = 1, decimals = 0;
  if (digits > 9) return nullptr;
  if (first[1] != '.') count = read_eight(first, digits);  // most have one digit
  if (count == 8) return nullptr;
  first += count;
  if (*first == '.') {
    decimals = read_eight(++first, more);
    digits = digits * static_cast<uint64_t>(kTens[decimals]) + more;
    if (decimals == 8) {
      const int rest = read_eight(first + 8, more);
      if (count + rest > 10) return nullptr;  // the integer stays below 2^64
      digits = digits * static_cast<uint64_t>(kTens[rest]) + more;
      decimals += rest;
    }
  }
  if (digits > uint64_t{1} << 53) return nullptr;
  value = static_cast<double>(digits) / kTens[decimals];
  if (negative) value = -value;
  return first + decimals;
}

// Reads a decimal number as Python does; returns false if the field is no number.
bool read(const uint8_t* begin, const uint8_t* end, double& value) {
  const char *first = reinterpret_cast<const char*>(begin), *last = reinterpret_cast<const char*>(end);
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  const auto [stop, error] = std::from_chars(first, last, value);
  if (error == std::errc::result_out_of_range) {  // infinity or 0, in any locale
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
    value = strtod_l(std::string(first, last).c_str(), nullptr, c_locale);
  }
  if (error != std::errc() && error != std::errc::result_out_of_range) return false;
  return stop == last && *(last - 1) != ')';  // Python rejects nan(...)
}

// (bytes,) uint8, (n, 2) int64 contiguous  ->  (n,) float64, (n,) bool: which fields are no numbers
std::tuple<Tensor, Tensor> parse_numbers(Tensor file, Tensor spans) {
  check_spans("parse_numbers", file, spans);
  const int64_t n = spans.size(0);
  Tensor values = torch::stable::new_empty(file, {n}, ScalarType::Double);
  Tensor wrong = torch::stable::new_empty(file, {n}, ScalarType::Bool);
  const auto* bytes = data<const uint8_t>(file);
  const auto* bounds = data<const int64_t>(spans);
  auto* value = data<double>(values);
  auto* bad = data<bool>(wrong);
  const int64_t last_short = file.size(0) - kShort;
  common::in_parallel("parse_numbers", n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t *const first = bytes + bounds[2 * i], *const last = bytes + bounds[2 * i + 1];
      value[i] = 0;
      bad[i] = (bounds[2 * i] > last_short || read_short(first, value[i]) != last) && !read(first, last, value[i]);
    }
  });
  return {values, wrong};
}

// (bytes,) uint8, (n, 2) int64 contiguous  ->  (n, width) int64: the bytes of each field, then 0
Tensor pack_fields(Tensor file, Tensor spans, int64_t width) {
  check_spans("pack_fields", file, spans);
  common::check_integer("pack_fields", "width", width, 1, kMaxColumns);
  const int64_t n = spans.size(0);
  Tensor words = new_int64(file, {n, width});
  const auto* bytes = data<const uint8_t>(file);
  const auto* bounds = data<const int64_t>(spans);
  auto* out = data<uint8_t>(words);
  common::in_parallel("pack_fields", n, kGrain, [&](int64_t begin, int64_t end) {
    std::memset(out + 8 * width * begin, 0, 8 * width * (end - begin));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t length = std::min(bounds[2 * i + 1] - bounds[2 * i], 8 * width);
      std::memcpy(out + 8 * width * i, bytes + bounds[2 * i], length);
    }
  });
  return words;
}

// White space of Python's bytes.split().
inline bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Reads the fields from `position` on; returns false if they are not `columns` numbers.
bool read_numbers(const uint8_t* data, int64_t position, int64_t end, int64_t size, int64_t columns, float* row) {
  for (int64_t column = 0; column < columns; ++column) {
    while (position < end && is_space(data[position])) ++position;
    double value;
    const uint8_t* stop = position + kShort <= size ? read_short(data + position, value) : nullptr;
    int64_t last = stop ? stop - data : position;
    if (!stop || last > end || (last < end && !is_space(data[last]))) {
      for (last = position; last < end && !is_space(data[last]); ++last) {}
      if (last == position || !read(data + position, data + last, value)) return false;
    }
    row[column] = static_cast<float>(value);
    position = last;
  }
  while (position < end && is_space(data[position])) ++position;
  return position == end;
}

// Reads a line of a word, which may contain spaces, and `columns` numbers. Returns the end of the word, or -1 for other lines.
int64_t read_row(const uint8_t* data, int64_t begin, int64_t end, int64_t size, int64_t columns, float* row) {
  for (int64_t word_end = begin; word_end < end && !is_space(data[begin]); ++word_end)
    if (is_space(data[word_end]) && !is_space(data[word_end - 1]) &&
        read_numbers(data, word_end, end, size, columns, row))
      return word_end;
  return -1;
}

// (bytes,) uint8, lines of a word and `columns` numbers  ->  (n, 2) int64, begin and end of the words, (n, columns) float32,
// rounded from float64 as numpy does; and () bool: whether some line differs, so that the results are undefined.
std::tuple<Tensor, Tensor, Tensor> parse_word_vectors(Tensor file, int64_t columns) {
  common::check("parse_word_vectors", "data: uint8 B", file);
  common::check_integer("parse_word_vectors", "columns", columns, 1, kMaxColumns);
  const auto* bytes = data<const uint8_t>(file);
  const int64_t size = file.size(0);
  const std::vector<int64_t> starts = line_begins(bytes, size, false);
  const int64_t n = starts.size() - 1;
  Tensor spans = new_int64(file, {n, 2}), wrong = torch::stable::new_empty(file, {}, ScalarType::Bool);
  Tensor values = torch::stable::new_empty(file, {n, columns}, ScalarType::Float);
  auto* bounds = data<int64_t>(spans);
  auto* value = data<float>(values);
  std::atomic<bool> other{false};
  common::in_parallel("parse_word_vectors", n, std::max<int64_t>(kGrain / columns, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !other; ++i) {
      const int64_t last = starts[i + 1] - (bytes[starts[i + 1] - 1] == '\n');
      bounds[2 * i] = starts[i];
      bounds[2 * i + 1] = read_row(bytes, starts[i], last, size, columns, value + i * columns);
      if (bounds[2 * i + 1] < 0) other = true;
    }
  });
  *data<bool>(wrong) = other;
  return {spans, values, wrong};
}

}  // namespace text

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("split_columns", TORCH_BOX(&text::split_columns));
  m.impl("parse_numbers", TORCH_BOX(&text::parse_numbers));
  m.impl("pack_fields", TORCH_BOX(&text::pack_fields));
  m.impl("parse_word_vectors", TORCH_BOX(&text::parse_word_vectors));
}
