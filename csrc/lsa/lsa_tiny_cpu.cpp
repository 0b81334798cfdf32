// Batches of tiny problems on the CPU, one problem in each lane of a vector.
#include <algorithm>
#include <memory>

#include "lsa_cpu.h"
#include "lsa_tiny.h"

namespace lsa {

template <class T>
bool are_tiny(const Batch<T>& batch, int64_t problems) {
  const int64_t lanes = std::min(common::vector_bytes(), kNarrowBytes) / sizeof(T);
  return supports_tiny(batch) && problems >= lanes / 2;
}

template <class T>
std::vector<int64_t> solve_tiny(const Batch<T>& batch, int64_t begin, int64_t end) {
  std::vector<char> buffer(batch.padded_size() * Memory<T>::kBytes);
  std::vector<int64_t> others;
  const auto leave = [&others](int64_t b) COMMON_NOINLINE { others.push_back(b); };
  common::vectorized([=, &batch, memory = Memory<T>(buffer.data(), batch.padded_size())](auto bytes) COMMON_INLINE {
    using Lanes = Tiny<T, std::min<int>(bytes, kNarrowBytes)>;
    const auto lanes = std::make_unique<Lanes>();
    for (int64_t b = begin; b < end && !stop::is_requested(batch.stop); b += Lanes::kLanes)
      lanes->solve(batch, b, static_cast<int32_t>(std::min<int64_t>(end - b, Lanes::kLanes)), memory, leave);
  });
  return others;
}

template bool are_tiny(const Batch<float>&, int64_t);
template bool are_tiny(const Batch<double>&, int64_t);
template std::vector<int64_t> solve_tiny(const Batch<float>&, int64_t, int64_t);
template std::vector<int64_t> solve_tiny(const Batch<double>&, int64_t, int64_t);

}  // namespace lsa
