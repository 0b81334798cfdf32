// The ways of the CPU through a batch, of which each file compiles one.
#pragma once
#include <vector>

#include "common/parallel.h"
#include "lsa_batch.h"

namespace lsa {

constexpr int kNarrow = 32;  // bytes of a vector, for small problems

// Problems begin, ..., end - 1, or those of these numbers, one after the other.
template <class Lane, class T>
COMMON_INLINE inline void solve_by(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* numbers,
                                   const Memory<T>& memory) {
  Lane group;
  for (int64_t n = begin; n < end && !stop::asked(batch.stop); ++n) batch.solve_one(group, numbers ? numbers[n] : n, memory);
}

// The same for rows of many columns.
void solve_wide(const Batch<float>& batch, int64_t begin, int64_t end, const int64_t* numbers);
void solve_wide(const Batch<double>& batch, int64_t begin, int64_t end, const int64_t* numbers);

// Are these problems, so many of them, for `solve_tiny`?
bool are_tiny(const Batch<float>& batch, int64_t problems);
bool are_tiny(const Batch<double>& batch, int64_t problems);

// Solves problems begin, ..., end - 1, side by side, but for those that it returns.
std::vector<int64_t> solve_tiny(const Batch<float>& batch, int64_t begin, int64_t end);
std::vector<int64_t> solve_tiny(const Batch<double>& batch, int64_t begin, int64_t end);

}  // namespace lsa
