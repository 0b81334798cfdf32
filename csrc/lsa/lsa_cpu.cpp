// Linear sum assignment on the CPU; problems are distributed over threads. One of four solvers is chosen by shape: many
// tiny problems at once (lsa_tiny.h), one problem with narrow or wide vectors along its rows (lsa_simd.h), or, for
// long rows, one that keeps lower bounds of blocks of a row and reads only blocks that may hold its minimum (lsa_bounds.h).
#include <algorithm>
#include <memory>

#include "common/parallel.h"
#include "lsa_bounds.h"
#include "lsa_tensors.h"
#include "lsa_tiny.h"

namespace lsa {

constexpr int kNarrowBytes = 32;                // of a vector, for small problems
constexpr int64_t kMinWideVectorColumns = 128;  // shorter rows have too few wide vectors to gain from them
constexpr int64_t kMinBoundedColumns = 1024;    // shorter rows are read faster than the bounds of their blocks are tested

// Problems begin, ..., end - 1 of a batch, or with `indices` the problems indices[begin], ..., indices[end - 1].
template <class T>
struct Part {
  const Batch<T>& batch;
  int64_t begin, end;
  Memory<T> memory;
  const int64_t* indices = nullptr;

  template <class Lane>
  COMMON_INLINE void solve_by() const {
    Lane group;
    for (int64_t n = begin; n < end && !stop::is_requested(batch.stop); ++n)
      batch.template solve_one<int64_t>(indices ? indices[n] : n, memory, 0, 1, [&](auto& p) COMMON_INLINE {
        group.stage(p);
        return Solver<Lane, T>{group, p};
      });
  }

  void solve() const {
    if (batch.cols >= kMinBoundedColumns)
      return common::vectorized([=](auto bytes) COMMON_INLINE { solve_by<BoundedLane<T, bytes>>(); });
    common::vectorized([=](auto bytes) COMMON_INLINE {
      if constexpr (bytes > kNarrowBytes)  // the CPU has wide vectors
        if (batch.cols < kMinWideVectorColumns) return solve_by<OneLane<T, kNarrowBytes>>();
      solve_by<OneLane<T, bytes>>();
    });
  }

  // Solves the problems in lanes of vectors, except the problems that it returns.
  std::vector<int64_t> solve_tiny() const {
    std::vector<int64_t> others;
    const auto leave = [&others](int64_t b) COMMON_NOINLINE { others.push_back(b); };
    common::vectorized([=](auto bytes) COMMON_INLINE {
      using Lanes = Tiny<T, std::min<int>(bytes, kNarrowBytes)>;
      const auto lanes = std::make_unique<Lanes>();
      for (int64_t b = begin; b < end && !stop::is_requested(batch.stop); b += Lanes::kLanes)
        lanes->solve(batch, b, static_cast<int32_t>(std::min<int64_t>(end - b, Lanes::kLanes)), memory, leave);
    });
    return others;
  }
};

struct OnCpu {
  explicit OnCpu(const Tensor&) {}
  template <class T>
  void operator()(const Batch<T>& batch) const {
    // Problems of a chunk: about 10^5 matrix entries, because smaller chunks are not worth a thread.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    const int64_t lanes = std::min(common::vector_bytes(), kNarrowBytes) / sizeof(T);
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      std::vector<char> buffer(batch.search_bytes());
      const Memory<T> memory(buffer.data(), batch.padded_size());
      if (!supports_tiny(batch) || end - begin < lanes / 2) return Part<T>{batch, begin, end, memory}.solve();
      const std::vector<int64_t> others = Part<T>{batch, begin, end, memory}.solve_tiny();
      Part<T>{batch, 0, static_cast<int64_t>(others.size()), memory, others.data()}.solve();
    });
  }
};

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("lsa", TORCH_BOX(&lsa::solve<lsa::OnCpu>)); }
