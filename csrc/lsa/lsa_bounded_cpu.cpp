// Problems with long rows on the CPU, by lower bounds of blocks of a row.
#include "lsa_bounds.h"
#include "lsa_cpu.h"

namespace lsa {

template <class T>
void solve_bounded(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* indices) {
  std::vector<char> buffer(batch.padded_size() * Memory<T>::kBytes);
  common::vectorized([=, &batch, memory = Memory<T>(buffer.data(), batch.padded_size())](auto bytes) COMMON_INLINE {
    solve_by<BoundedLane<T, bytes>>(batch, begin, end, indices, memory);
  });
}

template void solve_bounded(const Batch<float>&, int64_t, int64_t, const int64_t*);
template void solve_bounded(const Batch<double>&, int64_t, int64_t, const int64_t*);

}  // namespace lsa
