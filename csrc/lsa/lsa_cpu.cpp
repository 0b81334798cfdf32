// The assignment operator on the CPU: one lane per problem, problems distributed over threads.
#include "lsa_cpu.h"

#include "common/parallel.h"
#include "lsa_simd.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int64_t kMinWideColumns = 128;      // shorter rows have too few wide vectors to gain from them
constexpr int64_t kMinBoundedColumns = 1024;  // shorter rows are read faster than their bounds are tested

template <class T>
void solve_problems(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices = nullptr) {
  if (batch.cols >= kMinBoundedColumns) return solve_wide(batch, begin, end, indices);
  std::vector<char> buffer(batch.padded_size() * Memory<T>::kBytes);
  common::vectorized([=, &batch, memory = Memory<T>(buffer.data(), batch.padded_size())](auto bytes) COMMON_INLINE {
    if constexpr (bytes > kNarrowBytes)
      if (batch.cols < kMinWideColumns) return solve_by<OneLane<T, kNarrowBytes>>(batch, begin, end, indices, memory);
    solve_by<OneLane<T, bytes>>(batch, begin, end, indices, memory);
  });
}

Results on_cpu(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
               std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
               std::optional<int64_t> work_limit) {
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [](const auto& batch) {
    // A task has about 10^5 cost entries: smaller tasks cost more to pass to another thread than they save.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      if (!are_tiny(batch, end - begin)) return solve_problems(batch, begin, end);
      const std::vector<int64_t> others = solve_tiny(batch, begin, end);
      if (!others.empty()) solve_problems(batch, 0, static_cast<int64_t>(others.size()), others.data());
    });
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu));
}
