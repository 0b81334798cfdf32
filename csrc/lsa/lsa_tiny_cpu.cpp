// Batches of tiny problems on the CPU, one problem in each lane of a vector.
#include <algorithm>
#include <memory>

#include "lsa_cpu.h"
#include "lsa_tiny.h"

namespace lsa {

namespace {

template <class T>
bool are_supported(const Batch<T>& batch, int64_t problems) {
  const int64_t lanes = std::min(common::vector_bytes(), kNarrowBytes) / sizeof(T);
  return supports_tiny(batch) && problems >= lanes / 2;
}

template <class T>
std::vector<int64_t> solve_in_lanes(const Batch<T>& batch, int64_t begin, int64_t end) {
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

}  // namespace

bool are_tiny(const Batch<float>& batch, int64_t problems) { return are_supported(batch, problems); }
bool are_tiny(const Batch<double>& batch, int64_t problems) { return are_supported(batch, problems); }

std::vector<int64_t> solve_tiny(const Batch<float>& batch, int64_t begin, int64_t end) {
  return solve_in_lanes(batch, begin, end);
}
std::vector<int64_t> solve_tiny(const Batch<double>& batch, int64_t begin, int64_t end) {
  return solve_in_lanes(batch, begin, end);
}

}  // namespace lsa
