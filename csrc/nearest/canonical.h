// Canonical distances of rows of any floating type: products and sums in float64, in the order of search/distance.py.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>
#include <vector>

#include "common/arguments.h"

namespace nearest {

using common::data, common::ScalarType, common::Tensor;

// Calls `f` with a zero of the tensor's dtype.
template <class F>
auto for_rows(const Tensor& tensor, F f) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    case ScalarType::Half: return f(torch::headeronly::Half{});
    case ScalarType::BFloat16: return f(torch::headeronly::BFloat16{});
    default: STD_TORCH_CHECK(false, "wanted rows of a floating type");
  }
}

enum Distance : int64_t { kEuclidean, kInner, kCosine };
constexpr int64_t kDistances = kCosine + 1;

// Distances of queries to references (R, D), in one thread. All callers share the loops of canonical_cpu.cpp.
class Canonical {
 public:
  Canonical(const Tensor& reference, int64_t distance);

  // delta[n]: distance of the query to reference columns[n].
  void to_list(const double* query, const int64_t* columns, int64_t count, double* delta) {
    for_pairs(query, nullptr, columns, count, delta);
  }
  // delta[n]: distance of query rows[n], or without rows of the first query, to reference columns[n].
  void for_pairs(const double* queries, const int64_t* rows, const int64_t* columns, int64_t count, double* delta);

 private:
  // The rows, and scratch memory for sums.
  struct Rows {
    const void* first;
    int64_t stride, dim, size;  // size: D as a power of two, at least 8
    double* sums;
  };
  // For references of one type and contiguous rows.
  using Kernel = void (*)(const Rows& of, const double* queries, const int64_t* rows, const int64_t* columns,
                          int64_t count, double* delta);
  // Reads rows of another type or step, converted to float32 if that is exact.
  using Reader = void (*)(const Rows& of, int64_t step, const int64_t* columns, int64_t count, void* to);

  template <class T, int64_t distance>
  static void distances(const Rows& of, const double* queries, const int64_t* rows, const int64_t* columns,
                        int64_t count, double* delta);
  template <class T>
  static void read(const Rows& of, int64_t step, const int64_t* columns, int64_t count, void* to);
  template <class T>
  static Kernel kernel(int64_t distance);

  Rows rows_;
  int64_t step_;
  Kernel kernel_;
  Reader reader_;  // null: rows need no copy
  int64_t chunk_rows_;  // rows that are converted together
  std::vector<double> sums_, read_;
};

}  // namespace nearest
