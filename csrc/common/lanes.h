// Teams of CUDA lanes that cooperate: a warp, or a block of warps. The tests emulate them on a CPU (lanes_emulated.h).
//   lane(), size()
//   sync()              barrier; afterwards all lanes see all writes
//   combine(x, merged)  the combination of all lanes' x, for every lane; merged(x, n) combines n neighbors in a warp
//   reduce(x, merge)    the same by a commutative merge(X&, const X&)
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

#include <cstring>

namespace lanes {

constexpr unsigned kFullMask = 0xffffffffu;

template <class X>
__device__ X xor_shuffle(const X& x, int offset) {
  static_assert(sizeof(X) % sizeof(int) == 0, "shuffles move multiples of 4 bytes");
  X other;
  for (size_t k = 0; k < sizeof(X) / sizeof(int); ++k) {
    int part;
    memcpy(&part, reinterpret_cast<const char*>(&x) + k * sizeof(int), sizeof(int));
    part = __shfl_xor_sync(kFullMask, part, offset);
    memcpy(reinterpret_cast<char*>(&other) + k * sizeof(int), &part, sizeof(int));
  }
  return other;
}

template <class X, class Merge>
__device__ X butterfly_reduce(X x, int n, Merge merge) {
#pragma unroll 1
  for (int offset = n / 2; offset > 0; offset /= 2) merge(x, xor_shuffle(x, offset));
  return x;
}

struct Warp {
  static constexpr int kThreads = 128;  // of a block; its warps work independently
  static constexpr int kTeams = kThreads / 32;

  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ static int size() { return 32; }
  __device__ static void sync() { __syncwarp(); }
  template <class X, class Merged>
  __device__ static X combine(X x, Merged merged) {
    x = merged(x, 32);
    __syncwarp();
    return x;
  }
  template <class X, class Merge>
  __device__ static X reduce(X x, Merge merge) {
    return combine(x, [&](const X& mine, int n) { return butterfly_reduce(mine, n, merge); });
  }
};

template <int threads>
struct Block {
  static constexpr int kThreads = threads;
  static constexpr int kTeams = 1;

  __device__ static int lane() { return threadIdx.x; }
  __device__ static int size() { return kThreads; }
  __device__ static void sync() { __syncthreads(); }
  template <class X, class Merged>
  __device__ static X combine(X x, Merged merged) {
    constexpr int kWarps = kThreads / 32;
    __shared__ __align__(16) unsigned char bytes[kWarps * sizeof(X)];
    auto* const warp_results = reinterpret_cast<X*>(bytes);
    x = merged(x, 32);
    __syncthreads();  // the previous combination has been read
    if (threadIdx.x % 32 == 0) warp_results[threadIdx.x / 32] = x;
    __syncthreads();
    return merged(warp_results[threadIdx.x % kWarps], kWarps);
  }
  template <class X, class Merge>
  __device__ static X reduce(X x, Merge merge) {
    return combine(x, [&](const X& mine, int n) { return butterfly_reduce(mine, n, merge); });
  }
};

}  // namespace lanes
