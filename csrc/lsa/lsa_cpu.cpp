// Linear sum assignment on the CPU; problems are distributed over threads. One of four solvers is chosen by shape: many
// tiny problems at once (lsa_tiny.h), one problem with narrow or wide vectors along its rows (lsa_simd.h), or, for
// long rows, one that keeps lower bounds of blocks of a row and reads only blocks that may hold its minimum (lsa_bounds.h).
#include "lsa_cpu.h"

#include "common/parallel.h"
#include "lsa_simd.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int64_t kMinWideVectorColumns = 128;  // shorter rows have too few wide vectors to gain from them
constexpr int64_t kMinBoundedColumns = 1024;    // shorter rows are read faster than the bounds of their blocks are tested

// Solves problems begin, ..., end - 1, or with `indices` the problems indices[begin], ..., indices[end - 1].
template <class T>
void solve_problems(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices = nullptr) {
  if (batch.cols >= kMinBoundedColumns) return solve_bounded(batch, begin, end, indices);
  std::vector<char> buffer(batch.padded_size() * Memory<T>::kBytes);
  common::vectorized([=, &batch, memory = Memory<T>(buffer.data(), batch.padded_size())](auto bytes) COMMON_INLINE {
    if constexpr (bytes > kNarrowBytes)  // the CPU has wide vectors
      if (batch.cols < kMinWideVectorColumns) return solve_by<OneLane<T, kNarrowBytes>>(batch, begin, end, indices, memory);
    solve_by<OneLane<T, bytes>>(batch, begin, end, indices, memory);
  });
}

struct OnCpu {
  explicit OnCpu(const Tensor&) {}
  template <class T>
  void operator()(const Batch<T>& batch) const {
    // Problems of a chunk: about 10^5 matrix entries, because smaller chunks are not worth a thread.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      if (!are_tiny(batch, end - begin)) return solve_problems(batch, begin, end);
      const std::vector<int64_t> unsolved = solve_tiny(batch, begin, end);
      if (!unsolved.empty()) solve_problems(batch, 0, static_cast<int64_t>(unsolved.size()), unsolved.data());
    });
  }
};

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("lsa", TORCH_BOX(&lsa::solve<lsa::OnCpu>)); }
