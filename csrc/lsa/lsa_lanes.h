// The assignment search by a team of lanes that share the columns of a problem.
#pragma once
#include <type_traits>

#include "common/lanes.h"
#include "lsa_batch.h"

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define LSA_REDUCE_INSTRUCTION
#endif

namespace lsa {

#ifdef LSA_REDUCE_INSTRUCTION
// Integers in the order of the floats; both zeros map to the same integer.
__device__ inline unsigned ordered_bits(float x) {
  x += 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
__device__ inline float from_ordered_bits(unsigned bits) {
  bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Reduces n neighboring lanes; the other lanes hold copies.
__device__ inline TwoSmallest<float> two_smallest_in_warp(TwoSmallest<float> mine, int n) {
  if (threadIdx.x % 32 >= static_cast<unsigned>(n)) mine = TwoSmallest<float>();
  const unsigned key = ordered_bits(mine.value), minimum = __reduce_min_sync(lanes::kFullMask, key);
  const int32_t none = TwoSmallest<float>().column;
  const int32_t column = __reduce_min_sync(lanes::kFullMask, key == minimum ? mine.column : none);
  const bool first = key == minimum && mine.column == column;
  const unsigned second = __reduce_min_sync(lanes::kFullMask, first ? ordered_bits(mine.second) : key);
  return {from_ordered_bits(minimum), from_ordered_bits(second), column};
}
#endif

template <class T>
__device__ TwoSmallest<T> two_smallest_in_warp(const TwoSmallest<T>& mine, int n) {
  return lanes::butterfly_reduce(mine, n, [](TwoSmallest<T>& a, const TwoSmallest<T>& b) { a.add(b); });
}

// Memory of a search: shared memory that also holds all costs of the problem, shared memory, or global memory. Each has a
// separate kernel, so that the compiler knows the address space.
enum class Place { kTile, kShared, kGlobal };

// A Group of lsa.h.
template <class Team, bool staged>
struct Lanes : Team {
  static constexpr bool kBounded = false;
  static constexpr int kPrefetch = 4;
  char* tile;  // if `staged`, shared memory for all costs of a problem; else they are read in place

  __device__ explicit Lanes(char* memory) : tile(memory) {}

  template <class T, class Index>
  __device__ void stage(Problem<T, Index>& p) const {
    if constexpr (staged) copy(p, reinterpret_cast<T*>(tile));
  }
  template <class T, class Index>
  __device__ void copy(Problem<T, Index>& p, T* costs) const {
    for_columns(p.rows * p.cols, [&](int32_t k) { return p.sign * p.cost_at(k / p.cols, k % p.cols); },
          [&](int32_t k, T cost) { costs[k] = cost; });
    p.cost = costs;
    p.mask = nullptr;
    p.row_stride = p.cols;
    p.col_stride = 1;
  }
  template <class F>
  __device__ void for_each(int32_t n, F f) const {
    this->sync();
    for (int32_t j = this->lane(); j < n; j += this->size()) f(j);
    this->sync();
  }
  template <class Read, class F>
  __device__ void sweep(int32_t n, Read read, F f) const {
    for_columns(n, read, f);
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
    for_columns(n, read, [&](int32_t j, T x) { best.add({f(j, x), infinity<T>(), j}); });
    return combined(best);
  }
  template <class T, class Read, class F>
  __device__ int32_t first(int32_t n, int32_t start, T target, Read read, F f) const {
    TwoSmallest<T> best;  // by the distance from `start`, which is below 2^24 and so exact
    for_columns(n, read, [&](int32_t j, T x) {
      if (f(j, x) == target) best.add({static_cast<T>(j >= start ? j - start : j - start + n), infinity<T>(), j});
    });
    best = combined(best);
    return best.value < infinity<T>() ? best.column : -1;
  }

 private:
  // Calls f(j, read(j)) for this lane's columns. Several are read before the first is used, to hide the latency.
  template <class Read, class F>
  __device__ void for_columns(int32_t n, Read read, F f) const {
    const int32_t size = this->size();
    if (n <= size) {
      if (this->lane() < n) f(this->lane(), read(this->lane()));
      return;
    }
    for (int32_t begin = this->lane(); begin < n; begin += kPrefetch * size) {
      decltype(read(0)) x[kPrefetch];
#pragma unroll
      for (int k = 0; k < kPrefetch; ++k) x[k] = read(begin + k * size < n ? begin + k * size : begin);
#pragma unroll
      for (int k = 0; k < kPrefetch; ++k)
        if (begin + k * size < n) f(begin + k * size, x[k]);
    }
  }

  template <class T>
  __device__ TwoSmallest<T> combined(const TwoSmallest<T>& best) const {
    return this->combine(best, [](const TwoSmallest<T>& mine, int n) { return two_smallest_in_warp(mine, n); });
  }
};

// Bytes that a worker needs for its search, and for all costs of a problem.
template <class T>
struct MemorySize {
  int64_t search, tile;

  LSA_FN explicit MemorySize(const Batch<T>& batch)
      : search(batch.padded_size() * Memory<T>::kBytes),
        tile((batch.rows * batch.cols * int64_t(sizeof(T)) + 15) / 16 * 16) {}
};

// Solves the problems of one block. `memory` holds the searches of all workers if it is global, else those of this block,
// followed by their tiles. Only global memory is used for problems of any size, so only it needs 64-bit indices.
template <class Team, Place place, class T>
__device__ void solve_assigned(const Batch<T>& batch, int64_t workers, char* memory) {
  using Index = std::conditional_t<place == Place::kGlobal, int64_t, int32_t>;
  const int64_t team = threadIdx.x / Team::size(), worker = int64_t(blockIdx.x) * Team::kTeams + team;
  const MemorySize<T> sizes(batch);
  Lanes<Team, place == Place::kTile> group(memory + Team::kTeams * sizes.search + team * sizes.tile);
  const Memory<T> search(memory + (place == Place::kGlobal ? worker : team) * sizes.search, batch.padded_size());
  for (int64_t b = worker; b < batch.problems; b += workers) batch.template solve_one<Index>(group, b, search);
}

}  // namespace lsa
