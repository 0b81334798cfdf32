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
// Whole numbers in the order of the floats; of the two zeros one number.
__device__ inline unsigned in_order(float x) {
  x += 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
__device__ inline float from_order(unsigned bits) {
  bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Of n neighbouring lanes; the others repeat them.
__device__ inline Least<float> least_in_warp(Least<float> mine, int n) {
  if (threadIdx.x % 32 >= static_cast<unsigned>(n)) mine = Least<float>();
  const unsigned key = in_order(mine.value), least = __reduce_min_sync(lanes::kAll, key);
  const int32_t none = Least<float>().column;
  const int32_t column = __reduce_min_sync(lanes::kAll, key == least ? mine.column : none);
  const bool first = key == least && mine.column == column;
  const unsigned second = __reduce_min_sync(lanes::kAll, first ? in_order(mine.second) : key);
  return {from_order(least), from_order(second), column};
}
#endif

template <class T>
__device__ Least<T> least_in_warp(const Least<T>& mine, int n) {
  return lanes::by_exchange(mine, n, [](Least<T>& a, const Least<T>& b) { a.add(b); });
}

// Where a worker searches: beside all costs of its problem in shared memory, in shared memory, or in global memory. Each is
// a kernel of its own, so that the compiler knows by which instructions memory is reached.
enum class Place { kTile, kShared, kGlobal };

// A Group, see lsa.h.
template <class Team, bool staged>
struct Lanes : Team {
  static constexpr bool kBounded = false;
  static constexpr int kAhead = 4;
  char* tile;  // if `staged`, shared memory for all costs of a problem; else they are read where they lie

  __device__ explicit Lanes(char* memory) : tile(memory) {}

  template <class T, class Index>
  __device__ void stage(Problem<T, Index>& p) const {
    if constexpr (staged) copy(p, reinterpret_cast<T*>(tile));
  }
  template <class T, class Index>
  __device__ void copy(Problem<T, Index>& p, T* costs) const {
    ahead(p.rows * p.cols, [&](int32_t k) { return p.sign * p.at(k / p.cols, k % p.cols); },
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
    ahead(n, read, f);
  }
  template <class F>
  __device__ void once(F f) const {
    this->sync();
    if (this->lane() == 0) f();
    this->sync();
  }
  template <class Read, class F>
  __device__ auto least(int32_t n, Read read, F f) const {
    using T = decltype(read(0));
    Least<T> best;
    ahead(n, read, [&](int32_t j, T x) { best.add({f(j, x), infinity<T>(), j}); });
    return combined(best);
  }
  template <class T, class Read, class F>
  __device__ int32_t first(int32_t n, int32_t start, T wanted, Read read, F f) const {
    Least<T> best;  // of the distance from `start`, which is below 2^24 and so exact
    ahead(n, read, [&](int32_t j, T x) {
      if (f(j, x) == wanted) best.add({static_cast<T>(j >= start ? j - start : j - start + n), infinity<T>(), j});
    });
    best = combined(best);
    return best.value < infinity<T>() ? best.column : -1;
  }

 private:
  // f(j, read(j)) for this lane's columns. Several are read before the first is used: memory is far away.
  template <class Read, class F>
  __device__ void ahead(int32_t n, Read read, F f) const {
    const int32_t size = this->size();
    if (n <= size) {
      if (this->lane() < n) f(this->lane(), read(this->lane()));
      return;
    }
    for (int32_t begin = this->lane(); begin < n; begin += kAhead * size) {
      decltype(read(0)) x[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) x[k] = read(begin + k * size < n ? begin + k * size : begin);
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (begin + k * size < n) f(begin + k * size, x[k]);
    }
  }

  template <class T>
  __device__ Least<T> combined(const Least<T>& best) const {
    return this->combine(best, [](const Least<T>& mine, int n) { return least_in_warp(mine, n); });
  }
};

// How much memory a worker needs for its search, and for all costs of a problem.
template <class T>
struct Room {
  int64_t search, tile;

  LSA_FN explicit Room(const Batch<T>& batch)
      : search(batch.side() * Memory<T>::kBytes),
        tile((batch.rows * batch.cols * int64_t(sizeof(T)) + 15) / 16 * 16) {}
};

// What the lanes of one block do. `memory` has room for the searches of all workers if it is global, else for those of this
// block, and for their tiles behind. Global memory is for problems of any size, so indices are long there alone.
template <class Team, Place place, class T>
__device__ void solve_share(const Batch<T>& batch, int64_t workers, char* memory) {
  using Index = std::conditional_t<place == Place::kGlobal, int64_t, int32_t>;
  const int64_t team = threadIdx.x / Team::size(), worker = int64_t(blockIdx.x) * Team::kTeams + team;
  const Room<T> room(batch);
  Lanes<Team, place == Place::kTile> group(memory + Team::kTeams * room.search + team * room.tile);
  const Memory<T> search(memory + (place == Place::kGlobal ? worker : team) * room.search, batch.side());
  for (int64_t b = worker; b < batch.problems; b += workers) batch.template solve_one<Index>(group, b, search);
}

}  // namespace lsa
