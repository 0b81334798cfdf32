// Groups of equal rows of integers on the CPU, one document after the other.
#include <algorithm>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"

namespace groups {

using common::data, common::ScalarType, common::Tensor;

constexpr int64_t kGrain = 1 << 12;  // minimum number of rows per thread
constexpr int64_t kSmall = 96;       // rows up to which counting the smaller ones is faster than sorting

inline int bits_of(uint64_t x) {
  int bits = 0;
  for (; x; x >>= 1) ++bits;
  return bits;
}

struct Document {
  const int64_t* keys;  // (length, width)
  int64_t length, width;
  int index_bits;  // of the numbers of rows

  // Writes each row and its number into one integer, in the order of rows; false if 63 bits do not hold them.
  bool pack(int64_t* packed) const {
    int bits = index_bits;
    for (int64_t i = 0; i < length; ++i) packed[i] = 0;
    for (int64_t column = 0; column < width; ++column) {
      int64_t low = keys[column], high = low;
      for (int64_t i = 1; i < length; ++i) {
        low = std::min(low, keys[i * width + column]);
        high = std::max(high, keys[i * width + column]);
      }
      const int more = bits_of(static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
      if ((bits += more) > 63) return false;
      for (int64_t i = 0; i < length; ++i) packed[i] = (packed[i] << more) + (keys[i * width + column] - low);
    }
    for (int64_t i = 0; i < length; ++i) packed[i] = (packed[i] << index_bits) | i;
    return true;
  }

  // Numbers of groups and rows, of any rows.
  void sort_rows(int64_t* packed) const {
    const auto row = [this](int64_t i) { return keys + i * width; };
    for (int64_t i = 0; i < length; ++i) packed[i] = i;
    std::sort(packed, packed + length, [&](int64_t i, int64_t j) {
      const auto [x, y] = std::mismatch(row(i), row(i) + width, row(j));
      return x == row(i) + width ? i < j : *x < *y;
    });
    int64_t group = 0;
    for (int64_t k = 0, last = 0; k < length; ++k) {
      const int64_t i = packed[k];
      if (k && !std::equal(row(i), row(i) + width, row(last))) ++group;
      packed[k] = (group << index_bits) | (last = i);
    }
  }

  void write(int64_t* packed, int64_t* sorted, int64_t* out) const {
    if (!length) return;
    if (!pack(packed)) {
      sort_rows(packed);
      sorted = packed;
    } else if (length > kSmall) {
      std::sort(packed, packed + length);
      sorted = packed;
    } else {
      common::vectorized([=, *this](auto) COMMON_INLINE {
        for (int64_t i = 0; i < length; ++i) {
          int64_t smaller = 0;
          for (int64_t j = 0; j < length; ++j) smaller += packed[j] < packed[i];
          sorted[smaller] = packed[i];
        }
      });
    }
    const int64_t mask = (int64_t{1} << index_bits) - 1;
    for (int64_t k = 0, group = 0, first = 0; k < length; ++k) {
      if (k && (sorted[k] >> index_bits) != (sorted[k - 1] >> index_bits)) ++group, first = k;
      const int64_t i = sorted[k] & mask;
      out[i] = group;
      out[length + i] = k - first;
      out[2 * length + k] = i;
    }
  }
};

// keys: (B, L, F) int64  ->  (B, 3, L) int64: the number of the group of equal rows that each row is in, rising with the
// columns of the group from 0; the number of earlier rows of that group; and the order that sorts the rows stably
Tensor group_rows(Tensor keys) {
  common::check("group_rows", "keys: int64 B L F", keys);
  const int64_t documents = keys.size(0), length = keys.size(1), width = keys.size(2);
  Tensor result = torch::stable::new_empty(keys, {documents, 3, length}, ScalarType::Long);
  const auto* key = data<const int64_t>(keys);
  auto* out = data<int64_t>(result);
  common::in_parallel("group_rows", documents, 1 + kGrain / (length + 1), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> packed(length), sorted(length);
    for (int64_t b = begin; b < end; ++b)
      Document{key + b * length * width, length, width, bits_of(length)}.write(packed.data(), sorted.data(),
                                                                              out + b * 3 * length);
  });
  return result;
}

}  // namespace groups

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("group_rows", TORCH_BOX(&groups::group_rows)); }
