// Problems of many columns on the CPU.
#include "lsa_bounds.h"
#include "lsa_cpu.h"

namespace lsa {

void solve_wide(const Batch<float>& batch, int64_t begin, int64_t end, const int64_t* numbers) {
  solve_with<BoundedLane>(batch, begin, end, numbers, 64);
}
void solve_wide(const Batch<double>& batch, int64_t begin, int64_t end, const int64_t* numbers) {
  solve_with<BoundedLane>(batch, begin, end, numbers, 64);
}

}  // namespace lsa
