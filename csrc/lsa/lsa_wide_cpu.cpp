// Problems of many columns on the CPU.
#include "lsa_bounds.h"
#include "lsa_cpu.h"

namespace lsa {

namespace {

template <class T>
void solve_bounded(const Batch<T>& batch, int64_t begin, int64_t end, const int64_t* numbers) {
  std::vector<char> room(batch.side() * Memory<T>::kBytes);
  common::vectorised([=, &batch, memory = Memory<T>(room.data(), batch.side())](auto bytes) COMMON_INLINE {
    solve_by<BoundedLane<T, bytes>>(batch, begin, end, numbers, memory);
  });
}

}  // namespace

void solve_wide(const Batch<float>& batch, int64_t begin, int64_t end, const int64_t* numbers) {
  solve_bounded(batch, begin, end, numbers);
}
void solve_wide(const Batch<double>& batch, int64_t begin, int64_t end, const int64_t* numbers) {
  solve_bounded(batch, begin, end, numbers);
}

}  // namespace lsa
