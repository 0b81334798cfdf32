// The solvers of the CPU; each file compiles one of them.
#pragma once
#include <vector>

#include "common/parallel.h"
#include "lsa_batch.h"

namespace lsa {

constexpr int kNarrowBytes = 32;  // bytes of a vector, for small problems

// Solves problems begin, ..., end - 1, or the problems of these indices, one after the other.
template <class Lane, class T>
COMMON_INLINE inline void solve_by(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices,
                                   const Memory<T>& memory) {
  Lane group;
  for (int64_t n = begin; n < end && !stop::is_requested(batch.stop); ++n)
    batch.template solve_one<int64_t>(indices ? indices[n] : n, memory, 0, 1, [&](auto& p) COMMON_INLINE {
      group.stage(p);
      return Solver<Lane, T, int64_t>{group, p};
    });
}

// Solves problems with long rows, by lower bounds of blocks of a row.
template <class T>
void solve_bounded(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices);

// Whether `solve_tiny` supports this number of these problems.
template <class T>
bool are_tiny(const Batch<T>& batch, int64_t problems);

// Solves problems begin, ..., end - 1 in lanes of vectors, except the problems that it returns.
template <class T>
std::vector<int64_t> solve_tiny(const Batch<T>& batch, int64_t begin, int64_t end);

}  // namespace lsa
