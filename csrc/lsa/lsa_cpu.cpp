// The assignment operator on the CPU: one lane per problem, problems spread over threads.
#include "lsa_cpu.h"

#include "common/parallel.h"
#include "lsa_simd.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int64_t kFew = 128;    // columns: below, a row is too few wide vectors for these to pay
constexpr int64_t kMany = 1024;  // columns: below, finding out what need not be read of a row costs more than reading it

template <class T>
void solve_each(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* numbers = nullptr) {
  if (batch.cols >= kMany) return solve_wide(batch, begin, end, numbers);
  std::vector<char> room(batch.side() * Memory<T>::kBytes);
  common::vectorised([=, &batch, memory = Memory<T>(room.data(), batch.side())](auto bytes) COMMON_INLINE {
    if constexpr (bytes > kNarrow)
      if (batch.cols < kFew) return solve_by<OneLane<T, kNarrow>>(batch, begin, end, numbers, memory);
    solve_by<OneLane<T, bytes>>(batch, begin, end, numbers, memory);
  });
}

Results on_cpu(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
               std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
               std::optional<int64_t> work_limit) {
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [](const auto& batch) {
    // About 10^5 cost entries make a task: below that, handing it to another thread costs more than it saves.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      if (!are_tiny(batch, end - begin)) return solve_each(batch, begin, end);
      const std::vector<int64_t> others = solve_tiny(batch, begin, end);
      if (!others.empty()) solve_each(batch, 0, static_cast<int64_t>(others.size()), others.data());
    });
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu));
}
