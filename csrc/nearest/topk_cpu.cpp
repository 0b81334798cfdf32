// The smallest entries of each query among tiles of filter values, which differ from canonical distances by a bound.
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tiles.h"

namespace nearest {

constexpr int64_t kRows = 128, kColumns = 1024;  // of a tile, which fits into a core's cache

// An entry as one integer, ordered by (value, column).
template <class T>
using Key = std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>;
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <class T>
constexpr Bits<T> kSign = Bits<T>(1) << (8 * sizeof(T) - 1);

template <class T>
COMMON_INLINE inline Key<T> key_of(T value, int32_t column) {
  Bits<T> bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = bits & kSign<T> ? ~bits : bits | kSign<T>;
  return Key<T>(bits) << 32 | static_cast<uint32_t>(column);
}
template <class T>
COMMON_INLINE inline T value_of(Key<T> key) {
  Bits<T> bits = static_cast<Bits<T>>(key >> 32);
  bits = bits & kSign<T> ? bits ^ kSign<T> : ~bits;
  T value;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// The smallest entries of each query so far: up to `capacity`, then only the k smallest of them; entries that are
// not below the last of these, the limit, are not added.
template <class T>
struct TopK {
  Key<T>* key;
  int32_t* count;
  T* limit;
  int64_t capacity, k;

  TopK(const Tensor& keys, const Tensor& count, const Tensor& limit, int64_t k)
      : key(data<Key<T>>(keys)), count(data<int32_t>(count)), limit(data<T>(limit)), capacity(keys.size(1)), k(k) {}

  COMMON_INLINE void push(int64_t q, T x, int64_t column) const {
    if (!(x < limit[q])) return;
    key[q * capacity + count[q]++] = key_of(x, static_cast<int32_t>(column));
    if (count[q] == capacity) compact(q);
  }
  COMMON_NOINLINE void compact(int64_t q) const {
    Key<T>* keys = key + q * capacity;
    std::nth_element(keys, keys + k - 1, keys + capacity);
    count[q] = static_cast<int32_t>(k);
    limit[q] = value_of<T>(keys[k - 1]);
  }
};

// Adds the entries of x: (Q, D) times rows: (C, D), transposed, plus bias, for references first, first + 1, ... to the lists
// of queries q, or if start is not negative, to those of references start + q and of all later references.
void update_topk(Tensor x, Tensor rows, Tensor bias, int64_t first, Tensor self_index, std::optional<Tensor> ignored,
                Tensor keys, Tensor count, Tensor limit, int64_t k, int64_t start) {
  const int64_t references = bias.size(0);
  STD_TORCH_CHECK(references <= std::numeric_limits<int32_t>::max(), "update_topk: got ", references,
                  " references, but columns are 32 bits wide");
  common::check("update_topk",
                "x: real Q D, rows: real C D, bias: real R, self_index: int64 Q, ignored: strided bool Q J, keys: real N K 2, "
                "count: int32 N, limit: real N",
                x, rows, bias, self_index, ignored, keys, count, limit);
  const bool is_symmetric = start >= 0;
  const int64_t queries = limit.size(0);
  common::check_integer("update_topk", "first", first, 0,
                        (is_symmetric ? std::min(references, queries) : references) - rows.size(0));
  common::check_integer("update_topk", "k", k, 1, keys.size(1) - 1);
  if (is_symmetric) common::check_integer("update_topk", "start", start, 0, std::min(references, queries) - x.size(0));
  else STD_TORCH_CHECK(x.size(0) == queries, "update_topk: got ", x.size(0), " queries, but lists for ", queries);
  common::check_range<int32_t>("update_topk", "count", count, keys.size(1));
  const int64_t shift = is_symmetric ? start : 0, diagonal = is_symmetric ? start - first : -x.size(0);
  Locks locks(limit.size(0));
  common::for_real(x, [&](auto zero) {
    using T = decltype(zero);
    const TopK<T> topk(keys, count, limit, k);
    const T* offset = data<const T>(bias);
    const auto update_rows = [&](const Tile<T>& tile, int64_t begin, int64_t end) {
      const int64_t column = first + tile.column;
      common::vectorized([=](auto) COMMON_INLINE {
        for (int64_t q = begin; q < end; ++q) {
          const T* entries = tile.row(q - shift - tile.query);
          for (int64_t c = 0; c < tile.columns; c += kStep) {
            const T *x = entries + c, *offsets = offset + column + c, limit = topk.limit[q];
            uint32_t bits = below(x, std::min(kStep, tile.columns - c), [=](int32_t i) COMMON_INLINE { return offsets[i]; },
                                  [=](int32_t) COMMON_INLINE { return limit; });
            for (; bits; bits &= bits - 1) {
              const int i = __builtin_ctz(bits);
              topk.push(q, x[i] + offsets[i], column + c + i);
            }
          }
        }
      });
    };
    const auto update_cols = [&](const Tile<T>& tile, int64_t begin, int64_t end) {
      common::vectorized([=](auto) COMMON_INLINE {
        for (int64_t n = 0; n < tile.queries; ++n) {
          const int64_t column = start + tile.query + n;
          const T *entries = tile.row(n) - first - tile.column, offset_of_column = offset[column];
          for (int64_t q = begin; q < end; q += kStep) {
            const T *x = entries + q, *limit = topk.limit + q;
            uint32_t bits = below(x, std::min(kStep, end - q), [=](int32_t) COMMON_INLINE { return offset_of_column; },
                                  [=](int32_t i) COMMON_INLINE { return limit[i]; });
            for (; bits; bits &= bits - 1) {
              const int i = __builtin_ctz(bits);
              topk.push(q + i, x[i] + offset_of_column, column);
            }
          }
        }
      });
    };
    for_tiles<T>("update_topk", x, rows, kRows, kColumns, diagonal, [&] {
      return [&](const Tile<T>& tile) {
        tile.mask_out(self_index, ignored, first);
        const int64_t begin = shift + tile.query, end = begin + tile.queries, column = first + tile.column;
        locks.for_blocks(begin, end, [&](int64_t from, int64_t to) { update_rows(tile, from, to); });
        if (!is_symmetric) return;
        locks.for_blocks(std::max(column, end), column + tile.columns,
                   [&](int64_t from, int64_t to) { update_cols(tile, from, to); });
      };
    });
  });
}

// Returns the `k` smallest values (Q, k) float64, ascending, and their columns (Q, k) int64, padded by infinity and
// -1.
std::tuple<Tensor, Tensor> finalize_topk(Tensor keys, Tensor count, Tensor limit, int64_t k) {
  common::check("finalize_topk", "keys: real N K 2, count: int32 N, limit: real N", keys, count, limit);
  common::check_range<int32_t>("finalize_topk", "count", count, keys.size(1) + 1);
  common::check_integer("finalize_topk", "k", k, 0, std::numeric_limits<int32_t>::max());
  const int64_t queries = limit.size(0);
  Tensor value = torch::stable::new_empty(limit, {queries, k}, ScalarType::Double);
  Tensor column = torch::stable::new_empty(limit, {queries, k}, ScalarType::Long);
  const stop::Flag stop;
  common::for_real(limit, [&](auto zero) {
    using T = decltype(zero);
    const TopK<T> topk(keys, count, limit, k);
    common::in_parallel("finalize_topk", queries, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end && !stop(); ++q) {
        auto* from = topk.key + q * topk.capacity;
        const int64_t size = std::min<int64_t>(k, topk.count[q]);
        if (size < topk.count[q]) std::nth_element(from, from + size, from + topk.count[q]);
        std::sort(from, from + size);
        for (int64_t n = 0; n < k; ++n) {
          data<double>(value)[q * k + n] = n < size ? value_of<T>(from[n]) : std::numeric_limits<double>::infinity();
          data<int64_t>(column)[q * k + n] = n < size ? static_cast<int32_t>(from[n]) : -1;
        }
      }
    });
  });
  return {value, column};
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("update_topk", TORCH_BOX(&nearest::update_topk));
  m.impl("finalize_topk", TORCH_BOX(&nearest::finalize_topk));
}
