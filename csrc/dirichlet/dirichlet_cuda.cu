// The sampling operators on CUDA: a warp per sample up to kWarpClasses classes, a block above. Lanes own columns, so that
// nothing is added atomically and equal calls give equal bits.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "dirichlet_team.h"

namespace dirichlet {

constexpr int32_t kWarpClasses = 256;
constexpr int64_t kSharedBytes = 46 * 1024;  // every block may have 48 KiB without asking; reductions need some
constexpr int64_t kPart = 2048;

template <class T>
__global__ void prepare_kernel(const Problem<T> problem) {
  const int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k < int64_t(problem.experiments) * problem.rows())
    problem.prepare(static_cast<int32_t>(k / problem.rows()), static_cast<int32_t>(k % problem.rows()));
}

template <class Team, class T>
__global__ void __launch_bounds__(Team::kThreads)
    sums_kernel(const __grid_constant__ Problem<T> problem, int64_t teams, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  draw_share<Team>(problem, teams, scratch, shared);
}

// A unit of work is kPart samples of a pair of cells, whose table costs as much as some draws.
template <class T>
__global__ void log_gamma_kernel(const double* alpha, const int64_t* keys, int64_t rows, int64_t cells, int64_t samples,
                                 int64_t start, int64_t units, T* out) {
  const int64_t pairs = (cells + 1) / 2, parts = (samples + kPart - 1) / kPart;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t first = unit % parts * kPart, pair = unit / parts % pairs, r = unit / parts / pairs;
    const int64_t end = first + kPart < samples ? first + kPart : samples, at = r * cells + 2 * pair;
    const bool both = 2 * pair + 1 < cells;
    const Cell<T> table[2] = {make_cell<T>(alpha[at]), make_cell<T>(both ? alpha[at + 1] : 0.0)};
    const Key key{uint32_t(keys[r / rows * 2]), uint32_t(keys[r / rows * 2 + 1])};
    for (int64_t s = first + threadIdx.x; s < end; s += blockDim.x) {
      T logs[2];
      draw_pair<false>(uint64_t(start + s), uint32_t(r % rows * pairs + pair), key, table, logs);
      out[at * samples + s] = logs[0];
      if (both) out[(at + 1) * samples + s] = logs[1];
    }
  }
}

// One thread for each sample: neighbouring threads add to neighbouring sums, in the order of the items.
__global__ void item_sums_kernel(const ItemProblem problem, const int64_t* key) {
  const int64_t s = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (s >= problem.samples) return;
  const Key words{uint32_t(key[0]), uint32_t(key[1])};
  const auto sample = uint64_t(problem.start + s);
  for (int64_t row = 0; row < problem.experiments * problem.cells; ++row) problem.out[row * problem.samples + s] = 0;
  for (int64_t item = 0; item < problem.items; item += 4) {
    const Words w = block(uint32_t(sample), uint32_t(sample >> 32), uint32_t(item / 4), 0, words);
    const uint32_t of_item[4] = {w.w0, w.w1, w.w2, w.w3};
    for (int64_t k = 0; k < 4 && item + k < problem.items; ++k) {
      const double weight = -log_uniform<double>(of_item[k]);
      for (int64_t e = 0; e < problem.experiments; ++e) problem.sums(e, item + k)[s] += weight;
    }
  }
}

__global__ void uniforms_kernel(const int64_t* key, uint32_t draw, int64_t count, double* out) {
  const int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const Words w = block(draw, 0, uint32_t(b), 0, Key{uint32_t(key[0]), uint32_t(key[1])});
  const uint32_t numbers[4] = {w.w0, w.w1, w.w2, w.w3};
  for (int64_t k = 0; k < 4 && 4 * b + k < count; ++k) out[4 * b + k] = uniform<double>(numbers[k]);
}

// As many blocks as there is work for, but no more than run at once: they share it evenly.
template <class Kernel>
int64_t blocks_of(Kernel kernel, int64_t wanted, int threads, int64_t shared, int32_t device) {
  int multiprocessors = 0, resident = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  STD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, static_cast<size_t>(shared)));
  STD_TORCH_CHECK(resident > 0, "the GPU runs no block of ", threads, " threads with ", shared, " bytes of shared memory");
  const int64_t most = int64_t(multiprocessors) * resident;
  return wanted < most ? wanted : most;
}

cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

template <class Team, class T>
void launch(const Problem<T>& problem, const Tensor& like, int32_t device) {
  const int64_t bytes = Matrix<Team, T>::bytes(problem);
  const bool fits = Team::kTeams * bytes <= kSharedBytes;
  const int64_t shared = fits ? Team::kTeams * bytes : 0;
  const int64_t wanted = (problem.experiments * problem.samples + Team::kTeams - 1) / Team::kTeams;
  const int64_t blocks = blocks_of(sums_kernel<Team, T>, wanted, Team::kThreads, shared, device);
  const int64_t teams = blocks * Team::kTeams;
  std::optional<Tensor> scratch;
  if (!fits) scratch = torch::stable::new_empty(like, {teams * bytes}, ScalarType::Byte);
  sums_kernel<Team, T><<<static_cast<unsigned>(blocks), Team::kThreads, shared, current_stream(device)>>>(
      problem, teams, scratch ? static_cast<char*>(scratch->data_ptr()) : nullptr);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void sums_on_cuda(Tensor out, Tensor prevalence, Tensor alphas, std::optional<Tensor> weights, Tensor keys,
                  int64_t start) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  dispatch(out, [&](auto zero) {
    using T = decltype(zero);
    Problem<T> problem = make_problem<T>(out, prevalence, alphas, weights, keys, start);
    if (out.numel() == 0) return;
    const int64_t rows = int64_t(problem.experiments) * problem.rows();
    const int64_t cells = problem.experiments * problem.cells_of_experiment() * int64_t(sizeof(Cell<T>));
    const Tensor table = torch::stable::new_empty(out, {cells + rows}, ScalarType::Byte);
    problem.cells = static_cast<Cell<T>*>(table.data_ptr());
    problem.modes = static_cast<int8_t*>(table.data_ptr()) + cells;
    prepare_kernel<<<static_cast<unsigned>((rows + 127) / 128), 128, 0, current_stream(device)>>>(problem);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
    if (problem.classes <= kWarpClasses) launch<lanes::Warp>(problem, out, device);
    else launch<lanes::Block<256>>(problem, out, device);
  });
}

void log_gamma_on_cuda(Tensor out, Tensor alpha, Tensor keys, int64_t start) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  dispatch(out, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = out.size(1), cells = out.size(2), samples = out.size(3);
    const int64_t units = out.size(0) * rows * ((cells + 1) / 2) * ((samples + kPart - 1) / kPart);
    if (units == 0) return;
    const int64_t blocks = blocks_of(log_gamma_kernel<T>, units, 256, 0, device);
    log_gamma_kernel<T><<<static_cast<unsigned>(blocks), 256, 0, current_stream(device)>>>(
        static_cast<const double*>(alpha.data_ptr()), static_cast<const int64_t*>(keys.data_ptr()), rows, cells, samples,
        start, units, static_cast<T*>(out.data_ptr()));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void item_sums_on_cuda(Tensor out, Tensor cells, Tensor key, int64_t start) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (out.numel() == 0) return;
  const auto blocks = static_cast<unsigned>((out.size(2) + 127) / 128);
  item_sums_kernel<<<blocks, 128, 0, current_stream(device)>>>(make_item_problem(out, cells, {}, start),
                                                               static_cast<const int64_t*>(key.data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void uniforms_on_cuda(Tensor out, Tensor key, int64_t draw) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (out.numel() == 0) return;
  const auto blocks = static_cast<unsigned>((out.numel() + 4 * 128 - 1) / (4 * 128));
  uniforms_kernel<<<blocks, 128, 0, current_stream(device)>>>(static_cast<const int64_t*>(key.data_ptr()),
                                                              uint32_t(draw), out.numel(), doubles_of(out));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace dirichlet

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) {
  m.impl("dirichlet_sums", TORCH_BOX(&dirichlet::sums_on_cuda));
  m.impl("log_gamma", TORCH_BOX(&dirichlet::log_gamma_on_cuda));
  m.impl("item_sums", TORCH_BOX(&dirichlet::item_sums_on_cuda));
  m.impl("uniforms", TORCH_BOX(&dirichlet::uniforms_on_cuda));
}
