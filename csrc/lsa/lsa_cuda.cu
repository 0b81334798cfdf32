// The assignment operator on CUDA: a warp per problem up to 128 columns, a block per problem above.
// Workers are persistent: each takes every `workers`-th problem, and searches in shared memory where that suffices.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "lsa_lanes.h"
#include "lsa_tensors.h"

namespace lsa {

constexpr int64_t kWarpSide = 128;
constexpr int64_t kAsked = 48 * 1024;  // more shared memory a block must ask for
constexpr int64_t kOwn = 1024;         // shared memory that a block takes besides what it is launched with
constexpr int kAtOnce = 512;           // threads at work on a multiprocessor: each has 128 registers

template <class Team, Place place, class T>
__global__ void __launch_bounds__(Team::kThreads, kAtOnce / Team::kThreads)
    solve_kernel(const __grid_constant__ Batch<T> batch, int64_t workers, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  if constexpr (place == Place::kGlobal) solve_share<Team, place>(batch, workers, scratch);
  else solve_share<Team, place>(batch, workers, shared);
}

int64_t attribute(cudaDeviceAttr which, int32_t device) {
  int value = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

template <class Team, class T>
void launch(const Batch<T>& batch, const Tensor& like, int32_t device) {
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
  const int64_t for_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - kOwn;
  const int64_t for_all = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  const int64_t wanted = (batch.problems + Team::kTeams - 1) / Team::kTeams;
  const int64_t at_once = multiprocessors * (kAtOnce / Team::kThreads);
  const Room<T> room(batch);
  const bool fits = Team::kTeams * room.search <= for_block && batch.narrow();
  const int64_t most = fits ? multiprocessors * 8 : at_once;  // blocks that wait for a place would hold scratch too
  const int64_t blocks = wanted < most ? wanted : most, workers = blocks * Team::kTeams;
  std::optional<Tensor> scratch;
  if (!fits) scratch = torch::stable::new_empty(like, {workers * room.search}, ScalarType::Byte);
  // Costs are staged where that leaves no fewer blocks at work.
  const int64_t with_tiles = Team::kTeams * (room.search + room.tile);
  const bool staged = fits && with_tiles <= for_block &&
                      for_all / (with_tiles + kOwn) * multiprocessors >= (wanted < at_once ? wanted : at_once);
  const int64_t shared = staged ? with_tiles : fits ? Team::kTeams * room.search : 0;
  const auto kernel = staged ? solve_kernel<Team, Place::kTile, T>
                      : fits ? solve_kernel<Team, Place::kShared, T>
                             : solve_kernel<Team, Place::kGlobal, T>;
  if (shared > kAsked - kOwn)  // always for as much: another thread's smaller launch must not take it away
    STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(for_block)));
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
    if (batch.rows <= kWarpSide && batch.cols <= kWarpSide) launch<lanes::Warp>(batch, cost, device);
    else launch<lanes::Block<256>>(batch, cost, device);
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) { m.impl("lsa", TORCH_BOX(&lsa::on_cuda)); }
