// The assignment operator on CUDA: a warp per problem up to 128 columns, a block per problem above.
// Workers are persistent: each takes every `workers`-th problem, and searches in shared memory where that suffices.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "lsa_tensors.h"

namespace lsa {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = 8;  // of a block: workers by themselves, or one worker together
constexpr int64_t kWarpSide = 128;
constexpr int64_t kSharedBytes = 47 * 1024;  // every block may have 48 KiB without asking; reductions need some

template <class T>
__device__ Least<T> exchanged(const Least<T>& x, int offset) {
  return {__shfl_xor_sync(kAll, x.value, offset), __shfl_xor_sync(kAll, x.second, offset),
          __shfl_xor_sync(kAll, x.column, offset)};
}

// Lanes that share the columns of a problem. Team says how many they are, which one this is, and how they meet:
//   sync()           all lanes arrive, and see what was written
//   reduce(x, add)   the sum of the lanes' x, by x.add, for every lane
template <class Team>
struct Lanes : Team {
  template <class T>
  __device__ void stage(Problem<T>&) const {}
  template <class F>
  __device__ void for_each(int32_t n, F f) const {
    this->sync();
    for (int32_t j = this->lane(); j < n; j += this->size()) f(j);
    this->sync();
  }
  template <class F>
  __device__ void sweep(int32_t n, F f) const {
    for (int32_t j = this->lane(); j < n; j += this->size()) f(j);
  }
  template <class F>
  __device__ void once(F f) const {
    this->sync();
    if (this->lane() == 0) f();
    this->sync();
  }
  template <class F>
  __device__ auto least(int32_t n, F f) const {
    using T = decltype(f(0));
    Least<T> best;
    for (int32_t j = this->lane(); j < n; j += this->size()) best.add({f(j), infinity<T>(), j});
    return this->reduce(best);
  }
  template <class T, class F>
  __device__ int32_t first(int32_t n, int32_t start, T wanted, F f) const {
    Least<T> best;  // of the distance from `start`, which is below 2^24 and so exact
    for (int32_t j = this->lane(); j < n; j += this->size())
      if (f(j) == wanted) best.add({static_cast<T>(j >= start ? j - start : j - start + n), infinity<T>(), j});
    best = this->reduce(best);
    return best.value < infinity<T>() ? best.column : -1;
  }
};

struct Warp {
  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ static int size() { return 32; }
  __device__ static void sync() { __syncwarp(); }
  template <class T>
  __device__ static Least<T> reduce(Least<T> best) {
    for (int offset = 16; offset > 0; offset /= 2) best.add(exchanged(best, offset));
    __syncwarp();
    return best;
  }
};

struct Block {
  __device__ static int lane() { return threadIdx.x; }
  __device__ static int size() { return 32 * kWarps; }
  __device__ static void sync() { __syncthreads(); }
  template <class T>
  __device__ static Least<T> reduce(Least<T> best) {
    __shared__ __align__(16) unsigned char bytes[kWarps * sizeof(Least<double>)];
    auto* const of_warp = reinterpret_cast<Least<T>*>(bytes);
    best = Warp::reduce(best);
    __syncthreads();  // the last reduction has been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    best = of_warp[0];
    for (int k = 1; k < kWarps; ++k) best.add(of_warp[k]);
    return best;
  }
};

// `scratch` is null where the search fits into shared memory.
template <class Team, class T>
__global__ void __launch_bounds__(32 * kWarps) solve_kernel(const Batch<T> batch, int64_t workers, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  Lanes<Team> group;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, worker = thread / Team::size();
  const int64_t bytes = batch.side() * Memory<T>::kBytes;
  char* const start = scratch ? scratch + worker * bytes : shared + threadIdx.x / Team::size() * bytes;
  const Memory<T> memory(start, batch.side());
  for (int64_t b = worker; b < batch.problems; b += workers) batch.solve_one(group, b, memory);
}

template <class Team, class T>
void launch(const Batch<T>& batch, const Tensor& like, int32_t device, int per_block) {
  int multiprocessors = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const int64_t wanted = (batch.problems + per_block - 1) / per_block, most = int64_t(multiprocessors) * 8;
  const int64_t blocks = wanted < most ? wanted : most, workers = blocks * per_block;
  const int64_t bytes = batch.side() * Memory<T>::kBytes, shared = per_block * bytes;
  const bool fits = shared <= kSharedBytes;
  std::optional<Tensor> scratch;
  if (!fits) scratch = torch::stable::new_empty(like, {workers * bytes}, ScalarType::Byte);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  solve_kernel<Team, T><<<static_cast<unsigned>(blocks), 32 * kWarps, fits ? shared : 0,
                          static_cast<cudaStream_t>(stream)>>>(
      batch, workers, scratch ? static_cast<char*>(scratch->data_ptr()) : nullptr);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

Results on_cuda(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
                std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
                std::optional<int64_t> work_limit) {
  const int32_t device = cost.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [&](const auto& batch) {
    if (batch.problems == 0) return;
    if (batch.side() <= kWarpSide + 16) launch<Warp>(batch, cost, device, kWarps);
    else launch<Block>(batch, cost, device, 1);
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) { m.impl("lsa", TORCH_BOX(&lsa::on_cuda)); }
