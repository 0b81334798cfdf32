// The assignment operator on the CPU: one lane per problem, problems spread over threads.
#include <atomic>
#include <new>

#include "lsa_simd.h"
#include "lsa_tensors.h"

namespace lsa {

template <class Group, class T>
void solve_range(const Batch<T>& batch, int64_t begin, int64_t end) {
  Group group;
  std::vector<char> bytes(batch.side() * Memory<T>::kBytes);
  const Memory<T> memory(bytes.data(), batch.side());
  for (int64_t b = begin; b < end && !stop::asked(batch.stop); ++b) batch.solve_one(group, b, memory);
}

// The same for the vectors of each kind of processor; `flatten` draws the whole algorithm into each.
#if defined(__x86_64__)
template <class T>
__attribute__((flatten, target("avx512f"))) void solve_range_64(const Batch<T>& batch, int64_t begin, int64_t end) {
  solve_range<OneLane<T, 64>>(batch, begin, end);
}
template <class T>
__attribute__((flatten, target("avx2"))) void solve_range_32(const Batch<T>& batch, int64_t begin, int64_t end) {
  solve_range<OneLane<T, 32>>(batch, begin, end);
}
#endif

template <class T>
void solve_fast(const Batch<T>& batch, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return solve_range_64(batch, begin, end);
  if (__builtin_cpu_supports("avx2")) return solve_range_32(batch, begin, end);
#endif
  solve_range<OneLane<T, 16>>(batch, begin, end);
}

Results on_cpu(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
               std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
               std::optional<int64_t> work_limit) {
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [](const auto& batch) {
    // About 10^5 cost entries make a task: below that, handing it to another thread costs more than it saves.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    std::atomic<bool> out_of_memory{false};  // an exception would lose its message on its way out of parallel_for
    torch::stable::parallel_for(0, batch.problems, grain, [&](int64_t begin, int64_t end) {
      try {
        solve_fast(batch, begin, end);
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
    });
    STD_TORCH_CHECK(!out_of_memory, "linear_sum_assignment: out of memory for the search");
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu));
}
