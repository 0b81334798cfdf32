// One CPU lane that processes several columns at once by vectors of the compiler.
#pragma once
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "lsa.h"

namespace lsa {

// Neighboring columns from `begin` on that fill one vector of `Bytes`.
template <int Bytes>
struct Columns {
  int32_t begin;
};

template <class T, int Bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T, int Bytes>
using Vector = typename VectorOf<T, Bytes>::type;

template <class T, int Bytes>
LSA_INLINE inline Vector<T, Bytes> load(const T* array, Columns<Bytes> j) {
  Vector<T, Bytes> x;
  std::memcpy(&x, array + j.begin, Bytes);
  return x;
}
template <class T, int Bytes>
LSA_INLINE inline void store(T* array, Columns<Bytes> j, const Vector<T, Bytes>& x) {
  std::memcpy(array + j.begin, &x, Bytes);
}
template <class T, int Bytes>
LSA_INLINE inline void store(T* array, Columns<Bytes> j, T x) {
  store(array, j, Vector<T, Bytes>{} + x);
}

template <int Offset, class V, size_t... k>
LSA_INLINE inline V xor_shuffle(const V& x, std::index_sequence<k...>) {
#if defined(__clang__)
  return __builtin_shufflevector(x, x, (k ^ Offset)...);
#else  // GCC has __builtin_shufflevector since version 12
  using Indices = decltype(x < x);
  return __builtin_shuffle(x, Indices{(k ^ Offset)...});
#endif
}

// Interleaves the first or the second halves of x and y.
template <bool second, class V, size_t... k>
LSA_INLINE inline V interleave(const V& x, const V& y, std::index_sequence<k...>) {
  constexpr size_t n = sizeof...(k), from = second ? n / 2 : 0;
#if defined(__clang__)
  return __builtin_shufflevector(x, y, (from + k / 2 + k % 2 * n)...);
#else
  using Indices = decltype(x < x);
  return __builtin_shuffle(x, y, Indices{(from + k / 2 + k % 2 * n)...});
#endif
}
// Moves entry i of vector k to entry k of vector i.
template <class V, size_t n>
LSA_INLINE inline void transpose(V (&x)[n]) {
  for (size_t done = 1; done < n; done *= 2) {
    V y[n];
    for (size_t k = 0; k < n / 2; ++k) {
      y[2 * k] = interleave<false>(x[k], x[k + n / 2], std::make_index_sequence<n>());
      y[2 * k + 1] = interleave<true>(x[k], x[k + n / 2], std::make_index_sequence<n>());
    }
    for (size_t k = 0; k < n; ++k) x[k] = y[k];
  }
}

template <class Mask>
LSA_INLINE inline bool any(const Mask& mask) {
  uint64_t parts[sizeof(Mask) / 8], all = 0;
  std::memcpy(parts, &mask, sizeof(Mask));
  for (const uint64_t part : parts) all |= part;
  return all != 0;
}

template <class V, size_t... k>
LSA_INLINE inline V min_of_pairs(const V& x, const V& y, std::index_sequence<k...>) {
#if defined(__clang__)
  const V even = __builtin_shufflevector(x, y, (2 * k)...), odd = __builtin_shufflevector(x, y, (2 * k + 1)...);
#else
  using Indices = decltype(x < x);
  const V even = __builtin_shuffle(x, y, Indices{(2 * k)...}), odd = __builtin_shuffle(x, y, Indices{(2 * k + 1)...});
#endif
  return odd < even ? odd : even;
}
// The minimum of each pair of neighbors: of x, then of y.
template <class V>
LSA_INLINE inline V min_of_pairs(const V& x, const V& y) {
  return min_of_pairs(x, y, std::make_index_sequence<sizeof(V) / sizeof(x[0])>());
}

// Sets every entry to the smallest entry.
template <int Offset, class V, size_t... k>
LSA_INLINE inline V broadcast_min_from(const V& x, std::index_sequence<k...> entries) {
  const V other = xor_shuffle<Offset>(x, entries), minimum = other < x ? other : x;
  if constexpr (Offset == 1) return minimum;
  else return broadcast_min_from<Offset / 2>(minimum, entries);
}

template <class T, int Bytes>
struct OneLane {
  static constexpr bool kBounded = false;
  static constexpr int32_t kWidth = Bytes / sizeof(T);
  static constexpr int32_t kBits = 8 * sizeof(T);
  using V = Vector<T, Bytes>;
  using Mask = decltype(V{} < V{});
  using BitMask = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  std::vector<T> staged;

  template <class F>
  LSA_INLINE void for_each(int32_t n, F f) const {
    for (int32_t j = 0; j < n; ++j) f(j);
  }
  template <class F>
  LSA_INLINE void once(F f) const {
    f();
  }
  // The last vector overlaps the previous one if n is no multiple of the width. (n < width: see stage.)
  template <class Read, class F>
  LSA_INLINE void sweep(int32_t n, Read read, F f) const {
    for (int32_t j = 0; j < n; j += kWidth) {
      const Columns<Bytes> columns{j + kWidth <= n ? j : n - kWidth};
      f(columns, read(columns));
    }
  }

  LSA_INLINE static V broadcast_min(const V& x) {
    return broadcast_min_from<kWidth / 2>(x, std::make_index_sequence<kWidth>());
  }

  LSA_INLINE static V columns_from(int32_t begin) {
    V columns;
    for (int k = 0; k < kWidth; ++k) columns[k] = static_cast<T>(k);
    return columns + static_cast<T>(begin);
  }

  template <class Read, class F>
  LSA_INLINE TwoSmallest<T> two_smallest(int32_t n, Read read, F f) const {
    if (n == 0) return {};
    V value = V{} + infinity<T>(), second = value, column{}, index = columns_from(0);
    const auto add = [&](const V& x) LSA_INLINE {
      const auto less = x < value;
      const V later = less ? value : x;
      second = later < second ? later : second;
      column = less ? index : column;
      value = less ? x : value;
    };
    const auto value_at = [&](Columns<Bytes> j) LSA_INLINE { return f(j, read(j)); };
    int32_t j = 0;
    for (; j + kWidth <= n; j += kWidth, index += static_cast<T>(kWidth)) add(value_at({j}));
    if (j < n) {
      index = columns_from(n - kWidth);
      const V x = value_at({n - kWidth});
      add(index < static_cast<T>(j) ? infinity<T>() : x);
    }
    const V minimum = broadcast_min(value), lowest = broadcast_min(value == minimum ? column : infinity<T>());
    return {minimum[0], broadcast_min(column == lowest ? second : value)[0], static_cast<int32_t>(lowest[0])};
  }

  LSA_INLINE static Mask lane_bits() {
    Mask bits;
    for (int k = 0; k < kWidth; ++k) bits[k] = 1 << k;
    return bits;
  }

  template <class Read, class F>
  LSA_INLINE int32_t first(int32_t n, int32_t start, T target, Read read, F f) const {
    if (n <= kBits) {  // one bit per column: a single pass without a minimum over the entries of a vector
      Mask matches{};
      for (int32_t j = 0; j < n; j += kWidth) {
        const Columns<Bytes> columns{j + kWidth <= n ? j : n - kWidth};
        matches |= (f(columns, read(columns)) == target) & (lane_bits() << columns.begin);
      }
      BitMask bits = 0;
      for (int k = 0; k < kWidth; ++k) bits |= static_cast<BitMask>(matches[k]);
      const BitMask later = bits >> start << start;
      return bits == 0 ? -1 : __builtin_ctzll(later != 0 ? later : bits);
    }
    for (const auto& [begin, end] : {std::pair{start, n}, std::pair{int32_t(0), start}}) {
      for (int32_t j = begin; j < end;) {
        V lowest = V{} + infinity<T>();
        for (int k = 0; k < 4 && j < end; ++k, j += kWidth) {  // one horizontal minimum per four vectors
          const int32_t from = j + kWidth <= n ? j : n - kWidth;
          const V index = columns_from(from);
          const V match = f(Columns<Bytes>{from}, read(Columns<Bytes>{from})) == target ? index : infinity<T>();
          const V passed = index < static_cast<T>(j) ? infinity<T>() : V{};  // added, because combining two masks is slow
          lowest = match + passed < lowest ? match + passed : lowest;
        }
        const T column = broadcast_min(lowest)[0];
        if (column < infinity<T>()) return static_cast<int32_t>(column);
      }
    }
    return -1;
  }

  // Copies the costs of a problem if vectors cannot be read from them in place: if neighbors are not contiguous, pairs are
  // masked, or a row is shorter than a vector.
  LSA_INLINE void stage(Problem<T>& p) {
    if (p.col_stride == 1 && !p.mask && p.cols >= kWidth) return;
    const int64_t width = p.cols > kWidth ? p.cols : kWidth;
    if (int64_t(staged.size()) < p.rows * width) staged.resize(p.rows * width);
    if (p.row_stride == 1 && !p.mask && p.rows >= kWidth && p.cols >= kWidth) return stage_transposed(p);
    for (int32_t begin = 0; begin < width; begin += kWidth) {  // blocks of columns, for transposed matrices
      const int32_t end = begin + kWidth < width ? begin + kWidth : static_cast<int32_t>(width);
      for (int32_t i = 0; i < p.rows; ++i)
        for (int32_t j = begin; j < end; ++j)
          staged[i * width + j] = p.sign * (j < p.cols ? p.cost_at(i, j) : infinity<T>());
    }
    read_staged(p, width);
  }

 private:
  // Copies a matrix with contiguous columns by squares of a vector's width; the last ones overlap the previous ones.
  LSA_INLINE void stage_transposed(Problem<T>& p) {
    for (int32_t column = 0; column < p.cols; column += kWidth) {
      const int32_t j = column + kWidth <= p.cols ? column : p.cols - kWidth;
      for (int32_t row = 0; row < p.rows; row += kWidth) {
        const int32_t i = row + kWidth <= p.rows ? row : p.rows - kWidth;
        V square[kWidth];
        for (int32_t k = 0; k < kWidth; ++k) square[k] = load(p.cost + (j + k) * p.col_stride, Columns<Bytes>{i});
        transpose(square);
        for (int32_t k = 0; k < kWidth; ++k) store(staged.data() + int64_t(i + k) * p.cols, Columns<Bytes>{j}, square[k]);
      }
    }
    read_staged(p, p.cols);
  }
  LSA_INLINE void read_staged(Problem<T>& p, int64_t width) const {
    p.cost = staged.data();
    p.mask = nullptr;
    p.row_stride = width;
    p.col_stride = 1;
    p.width = static_cast<int32_t>(width);
  }
};

}  // namespace lsa
