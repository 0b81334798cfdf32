// The assignment search by a team of lanes that share the columns of a problem, for what lsa_registers.h does not solve.
#pragma once
#include <type_traits>

#include "common/lanes.h"
#include "lsa_batch.h"

namespace lsa {

// Integers in the order of the floats; both zeros map to the same integer.
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
constexpr KeyOf<T> kSignBit = KeyOf<T>(1) << (8 * sizeof(T) - 1);

template <class T>
__device__ inline KeyOf<T> key_of(T x) {
  x += T(0);
  KeyOf<T> bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits ^ (bits & kSignBit<T> ? ~KeyOf<T>(0) : kSignBit<T>);
}
template <class T>
__device__ inline T value_of(KeyOf<T> key) {
  key ^= key & kSignBit<T> ? kSignBit<T> : ~KeyOf<T>(0);
  T x;
  memcpy(&x, &key, sizeof(x));
  return x;
}

__device__ inline uint32_t min_in_warp(uint32_t x) {
#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
  return __reduce_min_sync(lanes::kFullMask, x);
#else
  return lanes::butterfly_reduce(x, 32, [](uint32_t& a, uint32_t b) { a = b < a ? b : a; });
#endif
}
__device__ inline uint64_t min_in_warp(uint64_t x) {
  const auto high = static_cast<uint32_t>(x >> 32), least = min_in_warp(high);
  return uint64_t(least) << 32 | min_in_warp(high == least ? static_cast<uint32_t>(x) : 0xffffffffu);
}

// A Group of lsa.h.
template <class Team>
struct Lanes : Team {
  static constexpr bool kBounded = false;
  static constexpr int kPrefetch = 4;

  template <class F>
  __device__ void for_each(int32_t n, F f) const {
    this->sync();
#pragma unroll 1
    for (int32_t j = this->lane(); j < n; j += this->size()) f(j);
    this->sync();
  }
  // Several costs are read before the first is used, to hide the latency.
  template <class Read, class F>
  __device__ void sweep(int32_t n, Read read, F f) const {
    const int32_t size = this->size();
#pragma unroll 1
    for (int32_t begin = this->lane(); begin < n; begin += kPrefetch * size) {
      decltype(read(0)) x[kPrefetch];
#pragma unroll
      for (int k = 0; k < kPrefetch; ++k) x[k] = read(begin + k * size < n ? begin + k * size : begin);
#pragma unroll
      for (int k = 0; k < kPrefetch; ++k)
        if (begin + k * size < n) f(begin + k * size, x[k]);
    }
  }
  template <class F>
  __device__ void once(F f) const {
    this->sync();
    if (this->lane() == 0) f();
    this->sync();
  }
  template <class Read, class F>
  __device__ auto two_smallest(int32_t n, Read read, F f) const {
    using T = decltype(read(0));
    TwoSmallest<T> best;
    sweep(n, read, [&](int32_t j, T x) { best.add({f(j, x), infinity<T>(), j}); });
    return combined(best);
  }
  template <class T, class Read, class F>
  __device__ int32_t first(int32_t n, int32_t start, T target, Read read, F f) const {
    TwoSmallest<T> best;  // by the distance from `start`, which is below 2^24 and so exact
    sweep(n, read, [&](int32_t j, T x) {
      if (f(j, x) == target) best.add({static_cast<T>(j >= start ? j - start : j - start + n), infinity<T>(), j});
    });
    best = combined(best);
    return best.value < infinity<T>() ? best.column : -1;
  }

 private:
  template <class T>
  __device__ TwoSmallest<T> combined(const TwoSmallest<T>& best) const {
    return this->combine(best, [](const TwoSmallest<T>& mine, int) {  // lanes may hold copies
      const KeyOf<T> key = key_of(mine.value), minimum = min_in_warp(key);
      const uint32_t none = TwoSmallest<T>().column, column = min_in_warp(key == minimum ? mine.column : none);
      const bool is_first = key == minimum && uint32_t(mine.column) == column;
      const KeyOf<T> second = min_in_warp(is_first ? key_of(mine.second) : key);
      return TwoSmallest<T>{value_of<T>(minimum), value_of<T>(second), int32_t(column)};
    });
  }
};

// Solves the problems of one block. `memory` holds the searches of all `teams`.
template <class Team, class T>
__device__ void solve_assigned(const Batch<T>& batch, int64_t teams, char* memory) {
  const int64_t team = int64_t(blockIdx.x) * Team::kTeams + threadIdx.x / Team::size();
  Lanes<Team> group;
  const Memory<T> search(memory + team * batch.search_bytes(), batch.padded_size());
  for (int64_t b = team; b < batch.problems; b += teams)
    batch.template solve_one<int64_t>(b, search, group.lane(), group.size(),
                                      [&](auto& p) { return Solver<Lanes<Team>, T>{group, p}; });
}

}  // namespace lsa
