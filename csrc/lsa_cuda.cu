// The assignment operator on CUDA: one warp per problem.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "lsa_tensors.h"

namespace lsa {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarpsPerBlock = 4;

struct Warp {
  int lane;

  template <class F>
  __device__ void for_each(int32_t n, F f) const {
    for (int32_t j = lane; j < n; j += 32) f(j);
    __syncwarp();
  }
  template <class F>
  __device__ bool any(int32_t n, F f) const {
    bool found = false;
    for (int32_t j = lane; j < n; j += 32) found |= f(j);
    return __any_sync(kAll, found);
  }
  template <class F>
  __device__ auto least(int32_t n, F f) const {
    using T = decltype(f(0).distance);
    Candidate<T> best = no_candidate<T>();
    for (int32_t j = lane; j < n; j += 32) {
      const auto candidate = f(j);
      if (candidate.before(best)) best = candidate;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const Candidate<T> other{__shfl_xor_sync(kAll, best.distance, offset), __shfl_xor_sync(kAll, best.matched, offset),
                               __shfl_xor_sync(kAll, best.column, offset)};
      if (other.before(best)) best = other;
    }
    __syncwarp();
    return best;
  }
  template <class F>
  __device__ void once(F f) const {
    if (lane == 0) f();
    __syncwarp();
  }
};

template <class T>
__global__ void solve_kernel(Batch<T> batch, int64_t workers) {
  const int64_t worker = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const Warp warp{static_cast<int>(threadIdx.x % 32)};
  for (int64_t b = worker; b < batch.problems; b += workers) batch.solve_one(warp, b, worker);
}

template <class T>
Results solve_all(const Tensor& cost, bool maximize, const std::optional<Tensor>& row_lengths,
                  const std::optional<Tensor>& col_lengths) {
  const int32_t device = cost.get_device_index();
  const Outputs out(cost);
  Batch<T> batch = make_batch<T>(cost, maximize, row_lengths, col_lengths, out);
  if (batch.problems == 0) return out.results();

  int multiprocessors = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const int64_t wanted = (batch.problems + kWarpsPerBlock - 1) / kWarpsPerBlock, most = int64_t(multiprocessors) * 16;
  const int64_t blocks = wanted < most ? wanted : most, workers = blocks * kWarpsPerBlock;
  const Tensor distance = torch::stable::new_empty(cost, {workers, batch.wide()});
  const Tensor parent = torch::stable::new_empty(cost, {workers, batch.wide()}, ScalarType::Int);
  const Tensor reached = torch::stable::new_empty(cost, {workers, batch.wide()}, ScalarType::Byte);
  batch.distance = static_cast<T*>(distance.data_ptr());
  batch.parent = static_cast<int32_t*>(parent.data_ptr());
  batch.reached = static_cast<uint8_t*>(reached.data_ptr());

  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  solve_kernel<T><<<static_cast<unsigned>(blocks), 32 * kWarpsPerBlock, 0, static_cast<cudaStream_t>(stream)>>>(
      batch, workers);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return out.results();
}

Results on_cuda(const Tensor& cost, bool maximize, std::optional<Tensor> row_lengths,
                std::optional<Tensor> col_lengths) {
  const torch::stable::accelerator::DeviceGuard guard(cost.get_device_index());
  const ScalarType type = cost.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double, "cost: wanted float32 or float64");
  return type == ScalarType::Float ? solve_all<float>(cost, maximize, row_lengths, col_lengths)
                                   : solve_all<double>(cost, maximize, row_lengths, col_lengths);
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) { m.impl("lsa", TORCH_BOX(&lsa::on_cuda)); }
