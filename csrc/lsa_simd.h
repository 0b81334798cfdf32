// One CPU lane that takes several columns at once, where the compiler's vectors allow it.
#pragma once
#include <cstring>
#include <utility>
#include <vector>

#include "lsa.h"

namespace lsa {

// Neighbouring columns from `begin` on, as many as one vector of `Bytes` holds.
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
inline Vector<T, Bytes> load(const T* array, Columns<Bytes> j) {
  Vector<T, Bytes> x;
  std::memcpy(&x, array + j.begin, Bytes);
  return x;
}
template <class T, int Bytes>
inline void store(T* array, Columns<Bytes> j, const Vector<T, Bytes>& x) {
  std::memcpy(array + j.begin, &x, Bytes);
}
template <class T, int Bytes>
inline void store(T* array, Columns<Bytes> j, T x) {
  store(array, j, Vector<T, Bytes>{} + x);
}

template <int Offset, class V, size_t... k>
inline V exchanged(const V& x, std::index_sequence<k...>) {
  return __builtin_shufflevector(x, x, (k ^ Offset)...);
}

// The least entry, in every entry.
template <int Offset, class V, size_t... k>
inline V spread_least(const V& x, std::index_sequence<k...> entries) {
  const V other = exchanged<Offset>(x, entries), least = other < x ? other : x;
  if constexpr (Offset == 1) return least;
  else return spread_least<Offset / 2>(least, entries);
}

template <class T, int Bytes>
struct OneLane {
  static constexpr int32_t kWidth = Bytes / sizeof(T);
  using V = Vector<T, Bytes>;
  std::vector<T> staged;

  template <class F>
  void for_each(int32_t n, F f) const {
    for (int32_t j = 0; j < n; ++j) f(j);
  }
  template <class F>
  void once(F f) const {
    f();
  }
  template <class F>
  void sweep(int32_t n, F f) const {
    int32_t j = 0;
    for (; j + kWidth <= n; j += kWidth) f(Columns<Bytes>{j});
    for (; j < n; ++j) f(j);
  }

  static V spread(const V& x) { return spread_least<kWidth / 2>(x, std::make_index_sequence<kWidth>()); }

  template <class F>
  Least<T> least(int32_t n, F f) const {
    Least<T> best;
    int32_t j = 0;
    if (n >= kWidth) {
      V value = V{} + infinity<T>(), second = value, column{}, here{};
      for (int k = 0; k < kWidth; ++k) here[k] = static_cast<T>(k);
      for (; j + kWidth <= n; j += kWidth, here += static_cast<T>(kWidth)) {
        const V x = f(Columns<Bytes>{j});
        const auto less = x < value;
        const V later = less ? value : x;
        second = later < second ? later : second;
        column = less ? here : column;
        value = less ? x : value;
      }
      const V least = spread(value);
      const V lowest = spread(value == least ? column : infinity<T>());
      best = {least[0], spread(column == lowest ? second : value)[0], static_cast<int32_t>(lowest[0])};
    }
    for (; j < n; ++j) {
      const T x = f(j);
      best.add({x, infinity<T>(), j});
    }
    return best;
  }

  // Copies the costs, unless a scan of whole rows where they lie is as good: so that neighbours lie side by side, that
  // forbidden pairs are infinite, and that rows end on whole vectors.
  void stage(Problem<T>& p) {
    const int64_t width = (int64_t(p.cols) + kWidth - 1) / kWidth * kWidth;
    const bool in_place = p.col_stride == 1 && !p.mask;
    if (in_place && (width == p.cols || p.rows * width * int64_t(sizeof(T)) > kStagedBytes)) return;
    if (int64_t(staged.size()) < p.rows * width) staged.resize(p.rows * width);
    for (int32_t i = 0; i < p.rows; ++i) {
      T* row = staged.data() + i * width;
      if (in_place) {
        std::memcpy(row, p.cost + i * p.row_stride, p.cols * sizeof(T));
      } else {
        for (int32_t j = 0; j < p.cols; ++j) row[j] = p.sign * p.at(i, j);
      }
      for (int64_t j = p.cols; j < width; ++j) row[j] = p.sign * infinity<T>();
    }
    p.cost = staged.data();
    p.mask = nullptr;
    p.row_stride = width;
    p.col_stride = 1;
    p.width = static_cast<int32_t>(width);
  }
  static constexpr int64_t kStagedBytes = 1 << 20;
};

}  // namespace lsa
