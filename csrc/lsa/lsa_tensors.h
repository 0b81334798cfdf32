// Conversion of tensors to a lsa::Batch, shared by the CPU and the CUDA file of the operator.
#pragma once
#include <optional>
#include <tuple>
#include <vector>

#include "common/arguments.h"
#include "lsa_batch.h"

namespace lsa {

using common::data, common::ScalarType, common::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

struct Inputs {
  Tensor cost;
  bool maximize;
  std::optional<Tensor> row_lengths, col_lengths, mask, col_capacity, unmatched_cost;
  std::optional<int64_t> work_limit;
};

struct Outputs {
  Tensor col_of_row, row_of_col, row_dual, col_dual, status, total, scans;

  explicit Outputs(const Tensor& cost) {
    const int64_t rows = cost.size(-2), cols = cost.size(-1);
    const std::vector<int64_t> batch_shape(cost.sizes().begin(), cost.sizes().end() - 2);
    std::vector<int64_t> row_shape(batch_shape), col_shape(batch_shape);
    row_shape.push_back(rows);
    col_shape.push_back(cols);
    col_of_row = torch::stable::new_empty(cost, row_shape, ScalarType::Long);
    row_of_col = torch::stable::new_empty(cost, col_shape, ScalarType::Long);
    row_dual = torch::stable::new_empty(cost, row_shape);
    col_dual = torch::stable::new_empty(cost, col_shape);
    status = torch::stable::new_empty(cost, batch_shape, ScalarType::Char);
    total = torch::stable::new_empty(cost, batch_shape, ScalarType::Double);
    scans = torch::stable::new_empty(cost, batch_shape, ScalarType::Long);
  }
};

template <class T>
Batch<T> make_batch(const Inputs& in, const Outputs& out) {
  const Tensor& cost = in.cost;
  Batch<T> batch{};
  batch.leading_dims = static_cast<int32_t>(cost.dim()) - 2;
  STD_TORCH_CHECK(batch.leading_dims <= kMaxLeading, "cost: got ", cost.dim(), " dimensions, wanted at most ",
                  kMaxLeading + 2);
  for (int d = 0; d < batch.leading_dims; ++d) {
    batch.leading[d] = cost.size(d);
    batch.cost_leading[d] = cost.stride(d);
    batch.mask_leading[d] = in.mask ? in.mask->stride(d) : 0;
  }
  batch.problems = out.status.numel();
  batch.rows = cost.size(-2);
  batch.cols = cost.size(-1);
  STD_TORCH_CHECK(batch.rows <= kMaxSize && batch.cols <= kMaxSize, "cost: a side has more than 2^24 entries");
  batch.row_stride = cost.stride(-2);
  batch.col_stride = cost.stride(-1);
  batch.mask_row_stride = in.mask ? in.mask->stride(-2) : 0;
  batch.mask_col_stride = in.mask ? in.mask->stride(-1) : 0;
  batch.sign = in.maximize ? T(-1) : T(1);
  batch.cost = data<const T>(cost);
  batch.mask = data<const bool>(in.mask);
  batch.row_lengths = data<const int64_t>(in.row_lengths);
  batch.col_lengths = data<const int64_t>(in.col_lengths);
  batch.col_capacity = data<const int64_t>(in.col_capacity);
  batch.unmatched_cost = data<const T>(in.unmatched_cost);
  batch.stop = stop::current_flag;
  batch.work_limit = in.work_limit.value_or(INT64_MAX);
  batch.col_of_row = data<int64_t>(out.col_of_row);
  batch.row_of_col = data<int64_t>(out.row_of_col);
  batch.row_dual = data<T>(out.row_dual);
  batch.col_dual = data<T>(out.col_dual);
  batch.total = data<double>(out.total);
  batch.status = data<int8_t>(out.status);
  batch.scans = data<int64_t>(out.scans);
  return batch;
}

// The operator of a device: SolveAll(cost) is made, and called with a Batch<float> or a Batch<double>.
template <class SolveAll>
Results solve(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
              std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
              std::optional<int64_t> work_limit) {
  common::check("lsa",
                "cost: strided real ... R C, row_lengths: int64 ..., col_lengths: int64 ..., "
                "mask: strided bool ... R C, col_capacity: int64 ... C, unmatched_cost: real ...",
                cost, row_lengths, col_lengths, mask, col_capacity, unmatched_cost);
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  const SolveAll solve_all(cost);
  const Outputs out(cost);
  common::for_real(cost, [&](auto zero) { solve_all(make_batch<decltype(zero)>(in, out)); });
  return {out.col_of_row, out.row_of_col, out.row_dual, out.col_dual, out.status, out.total, out.scans};
}

}  // namespace lsa
