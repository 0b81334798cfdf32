// Canonical distances of rows of any floating type: products and sums in float64, in the order of search/distance.py.
// Each product is rounded before it is added: this extension is compiled with -ffp-contract=off.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace nearest {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <class T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// `f` with a zero of the type of the tensor's rows.
template <class F>
void for_rows(const Tensor& tensor, F f) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    case ScalarType::Half: return f(torch::headeronly::Half{});
    case ScalarType::BFloat16: return f(torch::headeronly::BFloat16{});
    default: STD_TORCH_CHECK(false, "wanted rows of a floating type");
  }
}

enum Distance : int64_t { kEuclidean, kInner, kCosine };

// The distances of one query after the other to references (R, D).
template <class T>
class Canonical {
 public:
  Canonical(const Tensor& reference, int64_t distance)
      : rows_(data<const T>(reference)), stride_(reference.stride(0)), step_(reference.stride(1)),
        dim_(reference.size(1)), distance_(distance) {
    size_ = 1;
    while (size_ < dim_) size_ *= 2;
    terms_.resize(size_);
  }
  double operator()(const double* query, int64_t index) {
    const T* row = rows_ + index * stride_;
    if (step_ == 1) return of(query, [row](int64_t d) { return static_cast<double>(row[d]); });
    return of(query, [row, step = step_](int64_t d) { return static_cast<double>(row[d * step]); });
  }

 private:
  template <class Row>
  double of(const double* query, Row at) {
    if (distance_ == kEuclidean) {
      return sum([&](int64_t d) {
        const double difference = query[d] - at(d);
        return difference * difference;
      });
    }
    const double product = sum([&](int64_t d) { return query[d] * at(d); });
    if (distance_ == kInner) return -product;
    const double squared = sum([&](int64_t d) { return query[d] * query[d]; });
    const double norms = std::sqrt(squared) * std::sqrt(sum([&](int64_t d) { return at(d) * at(d); }));
    return norms == 0 ? 1.0 : 1 - product / norms;  // NaN stays NaN
  }
  template <class F>
  double sum(F term) {
    double* terms = terms_.data();
    for (int64_t d = 0; d < dim_; ++d) terms[d] = term(d);
    for (int64_t d = dim_; d < size_; ++d) terms[d] = 0;
    for (int64_t half = size_ / 2; half > 0; half /= 2)
      for (int64_t d = 0; d < half; ++d) terms[d] += terms[d + half];
    return terms[0];
  }

  const T* rows_;
  int64_t stride_, step_, dim_, size_, distance_;
  std::vector<double> terms_;
};

}  // namespace nearest
