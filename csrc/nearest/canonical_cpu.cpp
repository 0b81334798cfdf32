// Canonical distances of listed pairs.
#include "canonical.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/parallel.h"
#include "common/interrupt.h"

namespace nearest {

namespace {

constexpr int64_t kPrefetch = 4;                               // rows to prefetch
constexpr int64_t kMaxChunkRows = 8, kMaxChunkEntries = 2048;  // rows that are converted together, and their entries

typedef double Eight __attribute__((vector_size(64)));

// Loads eight numbers.
COMMON_INLINE inline void load(const double* from, Eight& x) { std::memcpy(&x, from, sizeof x); }
COMMON_INLINE inline void load(const float* from, Eight& x) {
  typedef float Floats __attribute__((vector_size(32)));
  Floats y;
  std::memcpy(&y, from, sizeof y);
  x = __builtin_convertvector(y, Eight);
}
// Loads fewer numbers, followed by zeros.
template <class T>
COMMON_INLINE inline void load_partial(const T* from, int64_t count, Eight& x) {
  double lanes[8] = {};
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  load(lanes, x);
}

// Adds at most 4 vectors.
template <class F>
COMMON_INLINE inline double add_last(int64_t size, const F& term) {
  Eight x = term(0);
  if (size == 2) x += term(1);
  if (size == 4) x = (x + term(2)) + (term(1) + term(3));
  const double a = x[0] + x[4], b = x[1] + x[5], c = x[2] + x[6], d = x[3] + x[7];
  return (a + c) + (b + d);
}

// The halving sum of vectors of terms: lane d of vector i is term 8 i + d. Three halvings at once reduce the vectors to an
// eighth, so that the others are never stored.
template <class F>
COMMON_INLINE inline double halving_sum(int64_t size, double* sums, const F& term) {
  int64_t spacing = size / 8;
  if (!spacing) return add_last(size, term);
  const auto sum_of_eight = [&](const auto& term_at, int64_t i) COMMON_INLINE {
    const Eight a = term_at(i) + term_at(i + 4 * spacing), b = term_at(i + spacing) + term_at(i + 5 * spacing);
    const Eight c = term_at(i + 2 * spacing) + term_at(i + 6 * spacing);
    const Eight d = term_at(i + 3 * spacing) + term_at(i + 7 * spacing);
    return (a + c) + (b + d);
  };
  const auto stored = [sums](int64_t i) COMMON_INLINE {
    Eight x;
    load(sums + 8 * i, x);
    return x;
  };
  const auto store = [sums](int64_t i, const Eight& x) COMMON_INLINE { std::memcpy(sums + 8 * i, &x, sizeof x); };
  for (int64_t i = 0; i < spacing; ++i) store(i, sum_of_eight(term, i));
  for (size = spacing; (spacing = size / 8); size = spacing)
    for (int64_t i = 0; i < spacing; ++i) store(i, sum_of_eight(stored, i));
  return add_last(size, stored);
}

// The halving sum of f(x, y) over the entries of two rows.
template <class X, class Y, class F>
COMMON_INLINE inline double sum_of(const X* x, const Y* y, int64_t dim, int64_t size, double* sums, const F& f) {
  const int64_t num_full = dim / 8;
  Eight rest = {};
  if (8 * num_full < dim) {
    Eight x_rest, y_rest;
    load_partial(x + 8 * num_full, dim - 8 * num_full, x_rest);
    load_partial(y + 8 * num_full, dim - 8 * num_full, y_rest);
    rest = f(x_rest, y_rest);
  }
  return halving_sum(size / 8, sums, [&](int64_t i) COMMON_INLINE {
    if (i >= num_full) return i == num_full ? rest : Eight{};
    Eight x_full, y_full;
    load(x + 8 * i, x_full);
    load(y + 8 * i, y_full);
    return f(x_full, y_full);
  });
}

}  // namespace

template <class T, int64_t distance>
void Canonical::distances(const Rows& of, const double* queries, const int64_t* rows, const int64_t* columns,
                          int64_t count, double* delta) {
  const T* const first = static_cast<const T*>(of.first);
  const int64_t stride = of.stride, dim = of.dim, size = of.size;
  double* const sums = of.sums;
  common::vectorized([=](auto) COMMON_INLINE {
    const auto product = [](const Eight& a, const Eight& b) COMMON_INLINE { return a * b; };
    for (int64_t n = 0; n < count; ++n) {
      if (n + kPrefetch < count) {  // their addresses are random
        const char* const next_row = reinterpret_cast<const char*>(first + columns[n + kPrefetch] * stride);
        for (int64_t byte = 0; byte < dim * int64_t(sizeof(T)); byte += 64) __builtin_prefetch(next_row + byte);
      }
      const double* const x = queries + (rows ? rows[n] * dim : 0);
      const T* const y = first + columns[n] * stride;
      if constexpr (distance == kEuclidean) {
        delta[n] = sum_of(x, y, dim, size, sums, [](const Eight& a, const Eight& b) COMMON_INLINE {
          const Eight difference = a - b;
          return difference * difference;
        });
      } else {
        const double products = sum_of(x, y, dim, size, sums, product);
        if constexpr (distance == kInner) {
          delta[n] = -products;
        } else {
          const double squared = sum_of(x, x, dim, size, sums, product), of_reference = sum_of(y, y, dim, size, sums, product);
          const double norms = std::sqrt(squared) * std::sqrt(of_reference);
          delta[n] = norms == 0 ? 1.0 : 1 - products / norms;  // NaN stays NaN
        }
      }
    }
  });
}

template <class T>
void Canonical::read(const Rows& of, int64_t step, const int64_t* columns, int64_t count, void* to) {
  using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* const first = static_cast<const T*>(of.first);
  const int64_t stride = of.stride, dim = of.dim;
  common::vectorized([=](auto) COMMON_INLINE {
    for (int64_t n = 0; n < count; ++n) {
      const T* const row = first + columns[n] * stride;
      Value* const out = static_cast<Value*>(to) + n * dim;
      if (step == 1) for (int64_t d = 0; d < dim; ++d) out[d] = static_cast<Value>(row[d]);
      else for (int64_t d = 0; d < dim; ++d) out[d] = static_cast<Value>(row[d * step]);
    }
  });
}

template <class T>
Canonical::Kernel Canonical::kernel(int64_t distance) {
  return distance == kEuclidean ? distances<T, kEuclidean> : distance == kInner ? distances<T, kInner> : distances<T, kCosine>;
}

Canonical::Canonical(const Tensor& reference, int64_t distance)
    : rows_{data<const void>(reference), reference.stride(0), reference.size(1), 8, nullptr}, step_(reference.stride(1)) {
  while (rows_.size < rows_.dim) rows_.size *= 2;
  sums_.resize(std::max<int64_t>(rows_.size / 8, 8));
  const bool single = reference.scalar_type() == ScalarType::Float, wide = reference.scalar_type() == ScalarType::Double;
  kernel_ = wide ? kernel<double>(distance) : kernel<float>(distance);
  reader_ = step_ == 1 && (single || wide) ? nullptr : for_rows(reference, [](auto zero) -> Reader { return read<decltype(zero)>; });
  chunk_rows_ = std::clamp<int64_t>(kMaxChunkEntries / std::max<int64_t>(rows_.dim, 1), 1, kMaxChunkRows);
  if (reader_) read_.resize(chunk_rows_ * rows_.dim);
}

void Canonical::for_pairs(const double* queries, const int64_t* rows, const int64_t* columns, int64_t count, double* delta) {
  Rows of = rows_;
  of.sums = sums_.data();
  if (!reader_) return kernel_(of, queries, rows, columns, count, delta);
  static constexpr int64_t kIndices[kMaxChunkRows] = {0, 1, 2, 3, 4, 5, 6, 7};
  of.first = read_.data();
  of.stride = of.dim;
  for (int64_t n = 0; n < count; n += chunk_rows_) {
    const int64_t num_rows = std::min(chunk_rows_, count - n);
    reader_(rows_, step_, columns + n, num_rows, read_.data());
    kernel_(of, queries, rows ? rows + n : nullptr, kIndices, num_rows, delta + n);
  }
}

Tensor canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int64_t distance) {
  common::check("canonical_pairs", "query: float64 Q D, reference: strided rows R D, row: int64 N, column: int64 N", query,
                reference, row, column);
  common::check_integer("canonical_pairs", "distance", distance, 0, kDistances - 1);
  common::check_range<int64_t>("canonical_pairs", "row", row, query.size(0));
  common::check_range<int64_t>("canonical_pairs", "column", column, reference.size(0));
  Tensor delta = torch::stable::new_empty(row, {row.numel()}, ScalarType::Double);
  const stop::Flag stop;
  constexpr int64_t kPairs = 256;  // between two tests of the flag
  common::in_parallel("canonical_pairs", row.numel(), kPairs, [&](int64_t begin, int64_t end) {
    Canonical canonical(reference, distance);
    for (int64_t n = begin; n < end && !stop(); n += kPairs)
      canonical.for_pairs(data<const double>(query), data<const int64_t>(row) + n, data<const int64_t>(column) + n,
                         std::min(kPairs, end - n), data<double>(delta) + n);
  });
  return delta;
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("canonical_pairs", TORCH_BOX(&nearest::canonical_pairs));
}
