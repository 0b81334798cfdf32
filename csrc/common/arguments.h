// What an operator wants of its tensors, in one line. Anybody may call an operator (torch.ops.tensormetrics), and a kernel
// reads memory as it was told: another dtype, shape or order there would be a wrong answer without a word, or a crash.
//
//   common::check("item_sums", "out: float64 E C S, cells: int64 E N, key: int64 2", out, cells, key);
//
// Of each tensor its name, dtype and sizes; all are contiguous, but for `strided` ones, and on one device. A letter is one
// size wherever it stands, first by itself; 64P and P+1 come from it; `...` are leading sizes, the same everywhere.
// `real` is float32 or float64, the same in all that are real; `rows` is any floating dtype. A tensor may be missing.
#pragma once
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

class Arguments {
 public:
  using Tensor = torch::stable::Tensor;
  using ScalarType = torch::headeronly::ScalarType;

  Arguments(const char* operation, const char* wanted) : operation_(operation), at_(wanted) {}

  void next(const Tensor* given) {
    const char* const end = at_ + std::strcspn(at_, ",");
    const std::string_view all(at_, end - at_);
    if (given && !fits(*given, all.substr(all.find(':') + 2))) fail(*given, all);
    at_ = *end ? end + 2 : end;
  }

 private:
  static std::string_view word(std::string_view& text) {
    const std::string_view first = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(first.size() + 1, text.size()));
    return first;
  }

  bool fits(const Tensor& tensor, std::string_view wanted) {
    const bool strided = wanted.substr(0, 8) == "strided ";
    if (strided) word(wanted);
    if (device_ == kAny) device_ = tensor.get_device_index();
    return has_type(tensor.scalar_type(), word(wanted)) && has_sizes(tensor, wanted) &&
           (strided || tensor.is_contiguous()) && device_ == tensor.get_device_index();
  }

  bool has_type(ScalarType type, std::string_view wanted) {
    const bool real = type == ScalarType::Float || type == ScalarType::Double;
    if (wanted == "rows") return real || type == ScalarType::Half || type == ScalarType::BFloat16;
    if (wanted != "real") return name_of(type) == wanted;
    if (real_ == ScalarType::Undefined) real_ = type;
    return real && type == real_;
  }

  bool has_sizes(const Tensor& tensor, std::string_view wanted) {
    const auto sizes = tensor.sizes();
    const int64_t dim = sizes.size();
    int64_t d = 0;
    if (wanted.substr(0, 3) == "...") {
      word(wanted);
      int64_t others = 0;
      for (std::string_view rest = wanted; !rest.empty(); word(rest)) ++others;
      if (leading_ < 0) leading_ = dim - others, of_leading_ = sizes.data();
      if (leading_ < 0 || dim != leading_ + others) return false;
      for (; d < leading_; ++d)
        if (sizes[d] != of_leading_[d]) return false;
    }
    for (; !wanted.empty() && d < dim; ++d)
      if (!is_size(sizes[d], word(wanted))) return false;
    return wanted.empty() && d == dim;
  }

  // A number, or a number of times a letter, plus a number.
  bool is_size(int64_t size, std::string_view wanted) {
    int64_t times = 0, plus = 0;
    size_t k = 0;
    for (; k < wanted.size() && wanted[k] >= '0' && wanted[k] <= '9'; ++k) times = 10 * times + (wanted[k] - '0');
    if (k == wanted.size()) return size == times;
    int64_t& known = letters_[wanted[k] - 'A'];
    if (k == 0) times = 1;
    if (k + 2 < wanted.size()) plus = wanted[k + 2] - '0';
    if (known < 0 && wanted.size() == 1) known = size;
    return known >= 0 && size == times * known + plus;
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

  [[noreturn]] void fail(const Tensor& given, std::string_view wanted) const {
    std::string shape, known;
    for (const int64_t size : given.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    for (int k = 0; k < 26; ++k)
      if (letters_[k] >= 0 && wanted.find(static_cast<char>('A' + k), wanted.find(' ')) != std::string_view::npos)
        known += std::string(known.empty() ? ", where " : ", ") + static_cast<char>('A' + k) + " = " + std::to_string(letters_[k]);
    STD_TORCH_CHECK(false, operation_, ": got ", std::string(wanted.substr(0, wanted.find(':'))), " of ",
                    std::string(name_of(given.scalar_type())), " and shape (", shape, ")",
                    given.is_contiguous() ? "" : ", not contiguous", ", wanted ", std::string(wanted), known,
                    ", contiguous, on one device");
    std::abort();
  }

  static constexpr int32_t kAny = -2;
  const char *operation_, *at_;
  int32_t device_ = kAny;
  ScalarType real_ = ScalarType::Undefined;
  int64_t leading_ = -1;
  const int64_t* of_leading_ = nullptr;
  int64_t letters_[26] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
};

inline const torch::stable::Tensor* given(const torch::stable::Tensor& tensor) { return &tensor; }
inline const torch::stable::Tensor* given(const std::optional<torch::stable::Tensor>& tensor) {
  return tensor ? &*tensor : nullptr;
}

template <class... Tensors>
void check(const char* operation, const char* wanted, const Tensors&... tensors) {
  Arguments arguments(operation, wanted);
  (arguments.next(given(tensors)), ...);
}

// Is an integer of an argument from `begin` to `last`? A bound such as all - count does not overflow, as first + count may.
inline void check_integer(const char* operation, const char* name, int64_t value, int64_t begin, int64_t last) {
  STD_TORCH_CHECK(begin <= value && value <= last, operation, ": got ", name, " = ", value, ", wanted ", begin, " to ", last);
}

constexpr int64_t kMany = int64_t{1} << 62;  // more than there are draws, or indices; sums with sizes do not overflow

// Are all entries of an argument on the CPU, whole numbers T, from `begin` to end - 1?
template <class T>
void check_range(const char* operation, const char* name, const torch::stable::Tensor& tensor, int64_t end,
                 int64_t begin = 0) {
  const T* const entries = static_cast<const T*>(tensor.data_ptr());
  const int64_t count = tensor.numel();
  bool wrong = false;
  for (int64_t k = 0; k < count; ++k) wrong |= (entries[k] < begin) | (entries[k] >= end);
  STD_TORCH_CHECK(!wrong, operation, ": got ", name, " outside of ", begin, " to ", end - 1);
}

}  // namespace common
