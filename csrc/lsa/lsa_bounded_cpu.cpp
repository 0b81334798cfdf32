// Problems with long rows on the CPU, by lower bounds of blocks of a row.
#include "lsa_bounds.h"
#include "lsa_cpu.h"

namespace lsa {

namespace {

template <class T>
void solve_by_bounds(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices) {
  std::vector<char> buffer(batch.padded_size() * Memory<T>::kBytes);
  common::vectorized([=, &batch, memory = Memory<T>(buffer.data(), batch.padded_size())](auto bytes) COMMON_INLINE {
    solve_by<BoundedLane<T, bytes>>(batch, begin, end, indices, memory);
  });
}

}  // namespace

void solve_bounded(const Batch<float>& batch, int64_t begin, int64_t end, const int64_t* indices) {
  solve_by_bounds(batch, begin, end, indices);
}
void solve_bounded(const Batch<double>& batch, int64_t begin, int64_t end, const int64_t* indices) {
  solve_by_bounds(batch, begin, end, indices);
}

}  // namespace lsa
