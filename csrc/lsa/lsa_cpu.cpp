// The assignment operator on the CPU: one lane per problem, problems spread over threads.
#include "common/parallel.h"
#include "lsa_simd.h"
#include "lsa_tensors.h"

namespace lsa {

template <int bytes, class T>
void solve_range(const Batch<T>& batch, int64_t begin, int64_t end) {
  OneLane<T, bytes> group;
  std::vector<char> room(batch.side() * Memory<T>::kBytes);
  const Memory<T> memory(room.data(), batch.side());
  for (int64_t b = begin; b < end && !stop::asked(batch.stop); ++b) batch.solve_one(group, b, memory);
}

Results on_cpu(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
               std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
               std::optional<int64_t> work_limit) {
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [](const auto& batch) {
    // About 10^5 cost entries make a task: below that, handing it to another thread costs more than it saves.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      common::vectorised([&](auto bytes) { solve_range<bytes>(batch, begin, end); });
    });
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu));
}
