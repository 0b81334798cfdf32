// Canonical distances of rows of any floating type: products and sums in float64, in the order of search/distance.py.
// Each product is rounded before it is added: this extension is compiled with -ffp-contract=off.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
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
    size_ = 8;
    while (size_ < dim_) size_ *= 2;
    sums_.resize(std::max<int64_t>(size_ / 8, 8));
  }
  double operator()(const double* query, int64_t index) {
    const T* row = rows_ + index * stride_;
    if (distance_ == kEuclidean) {
      return sum([&](int64_t i) {
        const Eight difference = of_query(query, i) - of_row(row, i);
        return difference * difference;
      });
    }
    const double product = sum([&](int64_t i) { return of_query(query, i) * of_row(row, i); });
    if (distance_ == kInner) return -product;
    const double squared = sum([&](int64_t i) {
      const Eight x = of_query(query, i);
      return x * x;
    });
    const double of_reference = sum([&](int64_t i) {
      const Eight y = of_row(row, i);
      return y * y;
    });
    const double norms = std::sqrt(squared) * std::sqrt(of_reference);
    return norms == 0 ? 1.0 : 1 - product / norms;  // NaN stays NaN
  }
  void prefetch(int64_t index) const {
    const char* const row = reinterpret_cast<const char*>(rows_ + index * stride_);
    for (int64_t at = 0; at < dim_ * step_ * int64_t(sizeof(T)); at += 64) __builtin_prefetch(row + at);
  }

 private:
  typedef double Eight __attribute__((vector_size(64)));

  // Columns 8 i to 8 i + 7, zeros behind the last.
  Eight of_query(const double* query, int64_t i) const {
    Eight x = {};
    if (8 * i + 8 <= dim_) std::memcpy(&x, query + 8 * i, sizeof x);
    else if (8 * i < dim_) std::memcpy(&x, query + 8 * i, (dim_ - 8 * i) * sizeof(double));
    return x;
  }
  Eight of_row(const T* row, int64_t i) const {
    Eight x = {};
    if constexpr (std::is_same_v<T, float>) {
      typedef float Floats __attribute__((vector_size(32)));
      if (step_ == 1 && 8 * i + 8 <= dim_) {
        Floats y;
        std::memcpy(&y, row + 8 * i, sizeof y);
        return __builtin_convertvector(y, Eight);
      }
    }
    for (int64_t lane = 0; lane < std::min<int64_t>(8, dim_ - 8 * i); ++lane)
      x[lane] = static_cast<double>(row[(8 * i + lane) * step_]);
    return x;
  }

  // The halving sum of vectors of terms: lane d of vector i is term 8 i + d. Three halvings add vectors that lie apart, so
  // that an eighth of them is left, without a place in memory for the others.
  template <class F>
  double sum(F term) {
    int64_t size = size_ / 8, apart = size / 8;
    if (!apart) return end(size, term);
    const auto of_eight = [&](const auto& at, int64_t i) {
      const Eight a = at(i) + at(i + 4 * apart), b = at(i + apart) + at(i + 5 * apart);
      const Eight c = at(i + 2 * apart) + at(i + 6 * apart), d = at(i + 3 * apart) + at(i + 7 * apart);
      return (a + c) + (b + d);
    };
    double* const sums = sums_.data();
    const auto before = [sums](int64_t i) {
      Eight x;
      std::memcpy(&x, sums + 8 * i, sizeof x);
      return x;
    };
    const auto keep = [sums](int64_t i, const Eight& x) { std::memcpy(sums + 8 * i, &x, sizeof x); };
    for (int64_t i = 0; i < apart; ++i) keep(i, of_eight(term, i));
    for (size = apart; (apart = size / 8); size = apart)
      for (int64_t i = 0; i < apart; ++i) keep(i, of_eight(before, i));
    return end(size, before);
  }
  // Of at most 4 vectors.
  template <class F>
  double end(int64_t size, const F& term) const {
    Eight x = term(0);
    if (size == 2) x += term(1);
    if (size == 4) x = (x + term(2)) + (term(1) + term(3));
    const double a = x[0] + x[4], b = x[1] + x[5], c = x[2] + x[6], d = x[3] + x[7];
    return (a + c) + (b + d);
  }

  const T* rows_;
  int64_t stride_, step_, dim_, size_, distance_;
  std::vector<double> sums_;
};

}  // namespace nearest
