// The assignment operator on CUDA: columns in registers where a layout has enough of them, else a block per problem with
// its search in global memory. Blocks are persistent: each solves every `gridDim.x`-th problem, or group of problems.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "lsa_registers.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int kResidentThreads = 512;     // threads of a multiprocessor, with 128 registers each
constexpr int64_t kBlocks = 16;           // of a multiprocessor, at most
constexpr int kWarps = 4;                 // problems of a block, above that many
using Team = lanes::Block<256>;

template <class T>
__global__ void __launch_bounds__(Team::kThreads, kResidentThreads / Team::kThreads)
    memory_kernel(const __grid_constant__ Batch<T> batch, char* searches) {
  solve_assigned<Team>(batch, gridDim.x, searches);
}

template <int W, int K>  // a lane with many columns needs more than 128 registers
constexpr int kResidentWarps = kResidentThreads / 32 - (K > 8 ? kWarps : 0);

template <int W, int K, class T>
__global__ void __launch_bounds__(32 * (W == 1 ? kWarps : W), kResidentWarps<W, K> / (W == 1 ? kWarps : W))
    register_kernel(const __grid_constant__ Batch<T> batch, int32_t teams) {
  extern __shared__ __align__(16) char shared[];
  solve_in_registers<W, K>(batch, teams, int64_t(gridDim.x) * teams, shared);
}

struct OnCuda {
  const Tensor& cost;
  const int32_t device = cost.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard{device};

  explicit OnCuda(const Tensor& of) : cost(of) {}
  template <class T>
  void operator()(const Batch<T>& batch) const {
    if (batch.problems == 0) return;
    int multiprocessors = 0;
    STD_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    void* current_stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &current_stream));
    const auto stream = static_cast<cudaStream_t>(current_stream);
    const bool solved = with_layout(batch, [&](auto W, auto K) {
      const int32_t teams = W == 1 && batch.problems > kBlocks * multiprocessors ? kWarps : 1;
      const int64_t needed = (batch.problems + teams - 1) / teams, most = kBlocks * multiprocessors;
      const auto blocks = static_cast<unsigned>(needed < most ? needed : most);
      register_kernel<W, K><<<blocks, 32 * W * teams, teams * Search<T, W, K>::kBytes, stream>>>(batch, teams);
    });
    if (!solved) {
      const int64_t most = int64_t(multiprocessors) * (kResidentThreads / Team::kThreads);
      const auto blocks = static_cast<unsigned>(batch.problems < most ? batch.problems : most);
      const Tensor searches = torch::stable::new_empty(cost, {blocks * batch.search_bytes()}, ScalarType::Byte);
      memory_kernel<<<blocks, Team::kThreads, 0, stream>>>(batch, data<char>(searches));
    }
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) { m.impl("lsa", TORCH_BOX(&lsa::solve<lsa::OnCuda>)); }
