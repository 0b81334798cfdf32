// The assignment operator on CUDA: a warp per problem up to 128 columns, a block per problem above.
// Workers are persistent: each solves every `workers`-th problem, and searches in shared memory if that is large enough.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "lsa_lanes.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int64_t kMaxWarpColumns = 128;
constexpr int64_t kDefaultShared = 48 * 1024;  // shared memory of a block without opt-in
constexpr int64_t kReservedShared = 1024;      // shared memory that the system reserves in each block
constexpr int kResidentThreads = 512;          // threads of a multiprocessor, with 128 registers each

template <class Team, Place place, class T>
__global__ void __launch_bounds__(Team::kThreads, kResidentThreads / Team::kThreads)
    solve_kernel(const __grid_constant__ Batch<T> batch, int64_t workers, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  if constexpr (place == Place::kGlobal) solve_assigned<Team, place>(batch, workers, scratch);
  else solve_assigned<Team, place>(batch, workers, shared);
}

int64_t attribute(cudaDeviceAttr which, int32_t device) {
  int value = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

template <class Team, class T>
void launch(const Batch<T>& batch, const Tensor& like, int32_t device) {
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
  const int64_t per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - kReservedShared;
  const int64_t per_multiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  const int64_t needed = (batch.problems + Team::kTeams - 1) / Team::kTeams;
  const int64_t resident_blocks = multiprocessors * (kResidentThreads / Team::kThreads);
  const MemorySize<T> sizes(batch);
  const bool fits_shared = Team::kTeams * sizes.search <= per_block && batch.fits_int32();
  const int64_t max_blocks = fits_shared ? multiprocessors * 8 : resident_blocks;  // waiting blocks would need scratch too
  const int64_t blocks = needed < max_blocks ? needed : max_blocks, workers = blocks * Team::kTeams;
  std::optional<Tensor> scratch;
  if (!fits_shared) scratch = torch::stable::new_empty(like, {workers * sizes.search}, ScalarType::Byte);
  // Costs are staged if that does not reduce the number of resident blocks.
  const int64_t with_tiles = Team::kTeams * (sizes.search + sizes.tile);
  const bool staged = fits_shared && with_tiles <= per_block &&
                      per_multiprocessor / (with_tiles + kReservedShared) * multiprocessors >=
                          (needed < resident_blocks ? needed : resident_blocks);
  const int64_t shared = staged ? with_tiles : fits_shared ? Team::kTeams * sizes.search : 0;
  const auto kernel = staged ? solve_kernel<Team, Place::kTile, T>
                      : fits_shared ? solve_kernel<Team, Place::kShared, T>
                             : solve_kernel<Team, Place::kGlobal, T>;
  if (shared > kDefaultShared - kReservedShared)  // always the maximum: a smaller launch of another thread must not lower it
    STD_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(per_block)));
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  kernel<<<static_cast<unsigned>(blocks), Team::kThreads, shared, static_cast<cudaStream_t>(stream)>>>(
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
    if (batch.rows <= kMaxWarpColumns && batch.cols <= kMaxWarpColumns) launch<lanes::Warp>(batch, cost, device);
    else launch<lanes::Block<256>>(batch, cost, device);
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) { m.impl("lsa", TORCH_BOX(&lsa::on_cuda)); }
