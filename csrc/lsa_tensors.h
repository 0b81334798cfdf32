// From tensors to a lsa::Batch, without its scratch: what the CPU and the CUDA file of the operator share.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <tuple>
#include <vector>

#include "lsa.h"

namespace lsa {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;  // col_of_row, row_of_col, duals, status

struct Outputs {
  Tensor col_of_row, row_of_col, row_dual, col_dual, status;

  explicit Outputs(const Tensor& cost) {
    const int64_t rows = cost.size(-2), cols = cost.size(-1);
    std::vector<int64_t> lead(cost.sizes().begin(), cost.sizes().end() - 2), with_rows(lead), with_cols(lead);
    with_rows.push_back(rows);
    with_cols.push_back(cols);
    col_of_row = torch::stable::new_empty(cost, with_rows, ScalarType::Long);
    row_of_col = torch::stable::new_empty(cost, with_cols, ScalarType::Long);
    row_dual = torch::stable::new_empty(cost, with_rows);
    col_dual = torch::stable::new_empty(cost, with_cols);
    status = torch::stable::new_empty(cost, lead, ScalarType::Char);
  }

  Results results() const { return {col_of_row, row_of_col, row_dual, col_dual, status}; }
};

template <class T>
Batch<T> make_batch(const Tensor& cost, bool maximize, const std::optional<Tensor>& row_lengths,
                    const std::optional<Tensor>& col_lengths, const Outputs& out) {
  Batch<T> batch{};
  batch.leading_dims = static_cast<int32_t>(cost.dim()) - 2;
  STD_TORCH_CHECK(batch.leading_dims <= kMaxLeading, "cost: got ", cost.dim(), " dimensions, wanted at most ",
                  kMaxLeading + 2);
  for (int d = 0; d < batch.leading_dims; ++d) {
    batch.leading[d] = cost.size(d);
    batch.leading_stride[d] = cost.stride(d);
  }
  batch.rows = cost.size(-2);
  batch.cols = cost.size(-1);
  STD_TORCH_CHECK(batch.rows <= INT32_MAX && batch.cols <= INT32_MAX, "cost: a side has more than 2^31 - 1 entries");
  batch.row_stride = cost.stride(-2);
  batch.col_stride = cost.stride(-1);
  batch.sign = maximize ? T(-1) : T(1);
  batch.cost = static_cast<const T*>(cost.data_ptr());
  batch.row_lengths = row_lengths ? static_cast<const int64_t*>(row_lengths->data_ptr()) : nullptr;
  batch.col_lengths = col_lengths ? static_cast<const int64_t*>(col_lengths->data_ptr()) : nullptr;
  batch.col_of_row = static_cast<int64_t*>(out.col_of_row.data_ptr());
  batch.row_of_col = static_cast<int64_t*>(out.row_of_col.data_ptr());
  batch.row_dual = static_cast<T*>(out.row_dual.data_ptr());
  batch.col_dual = static_cast<T*>(out.col_dual.data_ptr());
  batch.status = static_cast<int8_t*>(out.status.data_ptr());
  batch.problems = out.status.numel();
  return batch;
}

}  // namespace lsa
