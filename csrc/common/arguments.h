// Checks of operator arguments, described in one line. Users can call operators directly (torch.ops.tensormetrics), and a
// kernel does not check its memory: an unexpected dtype, shape or layout would give a wrong result silently, or a crash.
//
//   common::check("item_sums", "out: float64 E C S, cells: int64 E N, key: int64 2", out, cells, key);
//
// The description lists the name, dtype and sizes of each tensor; all are contiguous, except `strided` ones, and on one
// device. A letter denotes one size and first occurs alone; 64P and P+1 are computed from it; `...` are leading sizes,
// equal for all tensors. `real` is float32 or float64, equal for all real tensors; `rows` is any floating dtype. A tensor
// may be missing.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace common {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// The entries of a tensor; null without a tensor.
template <class T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
template <class T>
T* data(const std::optional<Tensor>& tensor) {
  return tensor ? data<T>(*tensor) : nullptr;
}

// Calls f with a zero of the dtype of a real tensor.
template <class F>
void for_real(const Tensor& tensor, F f) {
  if (tensor.scalar_type() == ScalarType::Float) f(float());
  else f(double());
}

class Arguments {
 public:
  Arguments(const char* operation, const char* expected) : operation_(operation), next_(expected) {}

  void next(const std::optional<Tensor>& tensor) {
    const char* const end = next_ + std::strcspn(next_, ",");
    const std::string_view argument(next_, end - next_);
    if (tensor && !matches(*tensor, argument.substr(argument.find(':') + 2))) fail(*tensor, argument);
    next_ = *end ? end + 2 : end;
  }

 private:
  static std::string_view next_token(std::string_view& text) {
    const std::string_view first = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(first.size() + 1, text.size()));
    return first;
  }

  bool matches(const Tensor& tensor, std::string_view expected) {
    const bool strided = expected.substr(0, 8) == "strided ";
    if (strided) next_token(expected);
    if (device_ == kAny) device_ = tensor.get_device_index();
    return has_type(tensor.scalar_type(), next_token(expected)) && has_sizes(tensor, expected) &&
           (strided || tensor.is_contiguous()) && device_ == tensor.get_device_index();
  }

  bool has_type(ScalarType type, std::string_view expected) {
    const bool real = type == ScalarType::Float || type == ScalarType::Double;
    if (expected == "rows") return real || type == ScalarType::Half || type == ScalarType::BFloat16;
    if (expected != "real") return name_of(type) == expected;
    if (real_type_ == ScalarType::Undefined) real_type_ = type;
    return real && type == real_type_;
  }

  bool has_sizes(const Tensor& tensor, std::string_view expected) {
    const auto sizes = tensor.sizes();
    const int64_t dim = sizes.size();
    int64_t d = 0;
    if (expected.substr(0, 3) == "...") {
      next_token(expected);
      int64_t trailing = 0;
      for (std::string_view rest = expected; !rest.empty(); next_token(rest)) ++trailing;
      if (num_leading_ < 0) num_leading_ = dim - trailing, leading_sizes_ = sizes.data();
      if (num_leading_ < 0 || dim != num_leading_ + trailing) return false;
      for (; d < num_leading_; ++d)
        if (sizes[d] != leading_sizes_[d]) return false;
    }
    for (; !expected.empty() && d < dim; ++d)
      if (!is_size(sizes[d], next_token(expected))) return false;
    return expected.empty() && d == dim;
  }

  // Parses a number, or [factor] letter [+ number].
  bool is_size(int64_t size, std::string_view expected) {
    int64_t factor = 0, plus = 0;
    size_t k = 0;
    for (; k < expected.size() && expected[k] >= '0' && expected[k] <= '9'; ++k) factor = 10 * factor + (expected[k] - '0');
    if (k == expected.size()) return size == factor;
    int64_t& value = letters_[expected[k] - 'A'];
    if (k == 0) factor = 1;
    if (k + 2 < expected.size()) plus = expected[k + 2] - '0';
    if (value < 0 && expected.size() == 1) value = size;
    return value >= 0 && size == factor * value + plus;
  }

  static std::string_view name_of(ScalarType type) {
    switch (type) {
      case ScalarType::Float: return "float32";
      case ScalarType::Double: return "float64";
      case ScalarType::Half: return "float16";
      case ScalarType::BFloat16: return "bfloat16";
      case ScalarType::Bool: return "bool";
      case ScalarType::Byte: return "uint8";
      case ScalarType::Char: return "int8";
      case ScalarType::Short: return "int16";
      case ScalarType::Int: return "int32";
      case ScalarType::Long: return "int64";
      default: return "another dtype";
    }
  }

  [[noreturn]] void fail(const Tensor& tensor, std::string_view expected) const {
    std::string shape, letter_sizes;
    for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    for (int k = 0; k < 26; ++k)
      if (letters_[k] >= 0 && expected.find(static_cast<char>('A' + k), expected.find(' ')) != std::string_view::npos)
        letter_sizes += std::string(letter_sizes.empty() ? ", where " : ", ") + static_cast<char>('A' + k) +
                        " = " + std::to_string(letters_[k]);
    STD_TORCH_CHECK(false, operation_, ": got ", std::string(expected.substr(0, expected.find(':'))), " of ",
                    std::string(name_of(tensor.scalar_type())), " and shape (", shape, ")",
                    tensor.is_contiguous() ? "" : ", not contiguous", ", wanted ", std::string(expected), letter_sizes,
                    ", contiguous, on one device");
    std::abort();
  }

  static constexpr int32_t kAny = -2;
  const char *operation_, *next_;
  int32_t device_ = kAny;
  ScalarType real_type_ = ScalarType::Undefined;
  int64_t num_leading_ = -1;
  const int64_t* leading_sizes_ = nullptr;
  int64_t letters_[26] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
};

template <class... Tensors>
void check(const char* operation, const char* expected, const Tensors&... tensors) {
  Arguments arguments(operation, expected);
  (arguments.next(tensors), ...);
}

// Checks that an integer argument is in begin, ..., last. A bound such as size - count cannot overflow, as first + count can.
inline void check_integer(const char* operation, const char* name, int64_t value, int64_t begin, int64_t last) {
  STD_TORCH_CHECK(begin <= value && value <= last, operation, ": got ", name, " = ", value, ", wanted ", begin, " to ", last);
}

constexpr int64_t kMaxCount = int64_t{1} << 62;  // bound of draws and indices; adding sizes to it does not overflow

// Checks that all entries of a CPU argument, integers of type T, are in begin, ..., end - 1.
template <class T>
void check_range(const char* operation, const char* name, const Tensor& tensor, int64_t end, int64_t begin = 0) {
  const T* const entries = data<const T>(tensor);
  const int64_t count = tensor.numel();
  bool wrong = false;
  for (int64_t k = 0; k < count; ++k) wrong |= (entries[k] < begin) | (entries[k] >= end);
  STD_TORCH_CHECK(!wrong, operation, ": got ", name, " outside of ", begin, " to ", end - 1);
}

}  // namespace common
