// Conversion of tensors to a lsa::Batch, shared by the CPU and the CUDA file of the operator.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <tuple>
#include <vector>

#include "common/arguments.h"
#include "lsa_batch.h"

namespace lsa {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
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

  Results results() const { return {col_of_row, row_of_col, row_dual, col_dual, status, total, scans}; }
};

template <class T>
const T* data(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<const T*>(tensor->data_ptr()) : nullptr;
}

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
  batch.cost = static_cast<const T*>(cost.data_ptr());
  batch.mask = data<bool>(in.mask);
  batch.row_lengths = data<int64_t>(in.row_lengths);
  batch.col_lengths = data<int64_t>(in.col_lengths);
  batch.col_capacity = data<int64_t>(in.col_capacity);
  batch.unmatched_cost = data<T>(in.unmatched_cost);
  batch.stop = stop::current_flag;
  batch.work_limit = in.work_limit.value_or(INT64_MAX);
  batch.col_of_row = static_cast<int64_t*>(out.col_of_row.data_ptr());
  batch.row_of_col = static_cast<int64_t*>(out.row_of_col.data_ptr());
  batch.row_dual = static_cast<T*>(out.row_dual.data_ptr());
  batch.col_dual = static_cast<T*>(out.col_dual.data_ptr());
  batch.total = static_cast<double*>(out.total.data_ptr());
  batch.status = static_cast<int8_t*>(out.status.data_ptr());
  batch.scans = static_cast<int64_t*>(out.scans.data_ptr());
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
  if (cost.scalar_type() == ScalarType::Float) solve_all(make_batch<float>(in, out));
  else solve_all(make_batch<double>(in, out));
  return out.results();
}

}  // namespace lsa
