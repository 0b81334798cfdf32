// The sampling operators on CUDA. A matrix is drawn by a lane up to kLaneClasses classes, by a warp up to kWarpClasses, by a
// block above: each lane of a warp or block owns columns, so that no addition is atomic and results are reproducible. The
// selection depends only on the number of classes: a sample does not depend on other samples of the call.
//
// A sample of C classes takes about 5.5 C^2 + 20 C warp instructions by lanes, 510 C by columns. A lane needs 28 C bytes in
// float32, so w = 228 KiB / (896 C + 1024) warps fit on an H100, and a single warp issues in about 0.4 of a scheduler's
// cycles: (5.5 C^2 + 20 C) / (0.1 w) < 510 C / 0.85 up to C = 50. The gain is smaller for few samples.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "dirichlet_lane.h"

namespace dirichlet {

constexpr int32_t kLaneClasses = 48, kWarpClasses = 256;
constexpr int64_t kSharedBytes = 44 * 1024;    // of kDefaultShared; queues and reductions need the rest
constexpr int64_t kDefaultShared = 48 * 1024;  // shared memory of a block without opt-in
constexpr int64_t kSumsBlocks = 3;             // of a multiprocessor, at least, for opting in
constexpr int64_t kReservedShared = 1024;      // shared memory that the system reserves in each block
constexpr int64_t kSchedulers = 4;             // of a multiprocessor
constexpr int kListThreads = 256;
constexpr int64_t kMaxPart = 2048, kListsPerMultiprocessor = 64;
constexpr int kItemThreads = 128, kItemsPerWarp = 4;  // weights that a warp draws at once
constexpr int kItemsPerStep = kItemThreads / kWarp * kItemsPerWarp;
constexpr int64_t kItemBlocks = 64;  // per multiprocessor: several times the number of resident blocks

// A warp for each row.
template <class T>
__global__ void prepare_kernel(const Problem<T> problem) {
  using lanes::Warp;
  const int64_t k = int64_t(blockIdx.x) * Warp::kTeams + threadIdx.x / Warp::size();
  if (k >= int64_t(problem.experiments) * problem.rows()) return;
  const auto e = static_cast<int32_t>(k / problem.rows()), r = static_cast<int32_t>(k % problem.rows());
  const Group group = Warp::reduce(problem.find_group(e, r, Warp::lane(), Warp::size()), Group::merge);
  const Alphas counts = Warp::reduce(problem.prepare(e, r, group, Warp::lane(), Warp::size()), Alphas::merge);
  if (Warp::lane() == 0) problem.decide(e, r, group, counts);
}

template <class Team, class T>
__global__ void __launch_bounds__(Team::kThreads)
    sums_kernel(const __grid_constant__ Problem<T> problem, int64_t teams, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  draw_assigned<Team>(problem, teams, scratch, shared);
}

template <class T, bool shared_memory>
__global__ void __launch_bounds__(kWarp)
    lane_sums_kernel(const __grid_constant__ Problem<T> problem, int64_t blocks, char* scratch) {
  extern __shared__ __align__(16) char shared[];
  if constexpr (shared_memory) draw_samples(problem, blocks, shared);
  else draw_samples(problem, blocks, scratch + blockIdx.x * LaneMatrix<T>::bytes(problem));
}

// Each warp draws lists of `part` samples of a pair of cells, whose table costs as much as several draws.
template <class T>
__global__ void __launch_bounds__(kListThreads)
    log_gamma_kernel(const double* alpha, const int64_t* keys, int64_t rows, int64_t cells, int64_t samples, int64_t start,
                     int64_t part, int64_t lists, T* out) {
  constexpr int kWarps = kListThreads / kWarp;
  const int64_t pairs = (cells + 1) / 2, parts = (samples + part - 1) / part;
  for (int64_t list = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; list < lists; list += int64_t(gridDim.x) * kWarps) {
    const int64_t first = list % parts * part, pair = list / parts % pairs, r = list / parts / pairs;
    const int64_t end = first + part < samples ? first + part : samples, index = r * cells + 2 * pair;
    const bool both = 2 * pair + 1 < cells;
    const Cell<T> even = make_cell<T>(alpha[index]), odd = make_cell<T>(both ? alpha[index + 1] : 0.0);
    const Key key{uint32_t(keys[r / rows * 2]), uint32_t(keys[r / rows * 2 + 1])};
    T* const logs = out + index * samples + first;
    const auto at = [&](int32_t k, Pair<T>& found) {
      found = {even, odd, uint64_t(start + first + k), uint32_t(r % rows * pairs + pair), key, false};
      return true;
    };
    draw_list<kWarps, T>(int32_t(end - first), at, [&](int32_t k, int32_t is_odd, T x) {
      if (!is_odd || both) logs[is_odd * samples + k] = x;
    });
  }
}

// Offsets of each cell's items in the items sorted by cell, and the end of the last cell.
__global__ void bounds_kernel(const ItemProblem problem, const int64_t* sorted, int64_t* bounds) {
  const int64_t of_experiment = problem.items + 1, k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= problem.experiments * of_experiment) return;
  const int64_t e = k / of_experiment, n = k % of_experiment;
  const int64_t* const cell = sorted + e * problem.items;
  const int64_t from = n == 0 ? 0 : cell[n - 1] + 1, to = n == problem.items ? problem.cells : cell[n];
  for (int64_t c = from; c <= to; ++c) bounds[e * (problem.cells + 1) + c] = n;
}

// Lanes are samples. The warps of a block draw the weights of kItemsPerStep items of one cell in parallel; the first warp
// adds them in a register in the order of the items, as the CPU does. Each sum is stored once.
__global__ void __launch_bounds__(kItemThreads) item_sums_kernel(const ItemProblem problem, const int64_t* key,
                                                                 const int64_t* order, const int64_t* bounds,
                                                                 int64_t groups) {
  __shared__ double weights[kItemsPerStep][kWarp];
  const int lane = threadIdx.x % kWarp, from = threadIdx.x / kWarp * kItemsPerWarp;
  const int64_t s = blockIdx.x % groups * kWarp + lane;
  const auto sample = uint64_t(problem.start + s);
  const Key local_key{uint32_t(key[0]), uint32_t(key[1])};
  for (int64_t row = blockIdx.x / groups; row < problem.experiments * problem.cells; row += gridDim.x / groups) {
    const int64_t e = row / problem.cells, end = bounds[row + e + 1];
    double sum = 0;
    for (int64_t begin = bounds[row + e]; begin < end; begin += kItemsPerStep) {
      const int n = end - begin < kItemsPerStep ? static_cast<int>(end - begin) : kItemsPerStep;
#pragma unroll
      for (int j = from; j < from + kItemsPerWarp; ++j) {
        if (from >= n) break;
        const int64_t item = order[e * problem.items + begin + (j < n ? j : from)];
        const RandomBits w = block(uint32_t(sample), uint32_t(sample >> 32), uint32_t(item / 4), 0, local_key);
        const uint32_t bits = item % 4 < 2 ? (item % 2 ? w.w1 : w.w0) : (item % 2 ? w.w3 : w.w2);
        weights[j][lane] = -log_uniform<double>(bits);
      }
      __syncthreads();
      for (int j = 0; from == 0 && j < n; ++j) sum += weights[j][lane];
      __syncthreads();
    }
    if (from == 0 && s < problem.samples) problem.out[row * problem.samples + s] = sum;
  }
}

__global__ void uniforms_kernel(const int64_t* key, uint32_t draw, int64_t count, double* out) {
  const int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const RandomBits w = block(draw, 0, uint32_t(b), 0, Key{uint32_t(key[0]), uint32_t(key[1])});
  const uint32_t bits[4] = {w.w0, w.w1, w.w2, w.w3};
  for (int64_t k = 0; k < 4 && 4 * b + k < count; ++k) out[4 * b + k] = uniform<double>(bits[k]);
}

int64_t attribute(cudaDeviceAttr which, int32_t device) {
  int value = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

// One block per unit of work, but at most the number of resident blocks, which share the work evenly.
template <class Kernel>
int64_t blocks_of(Kernel kernel, int64_t needed, int threads, int64_t shared, int32_t device) {
  int resident = 0;
  STD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, static_cast<size_t>(shared)));
  STD_TORCH_CHECK(resident > 0, "the GPU runs no block of ", threads, " threads with ", shared, " bytes of shared memory");
  const int64_t max_blocks = attribute(cudaDevAttrMultiProcessorCount, device) * resident;
  return needed < max_blocks ? needed : max_blocks;
}

// The maximum for any number of classes, which a smaller launch of another thread must not lower.
constexpr cudaFuncAttribute kMaxShared = cudaFuncAttributeMaxDynamicSharedMemorySize;

cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

template <class Team, class T>
void launch(const Problem<T>& problem, const Tensor& like, int32_t device) {
  const auto kernel = sums_kernel<Team, T>;
  const int64_t bytes = Matrix<Team, T>::bytes(problem), shared = Team::kTeams * bytes;
  const int64_t for_one = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - (kDefaultShared - kSharedBytes);
  const int64_t share = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) / kSumsBlocks - 2 * kReservedShared;
  const int64_t most = share < kSharedBytes ? kSharedBytes : share < for_one ? share : for_one;
  const bool fits_shared = shared <= most;
  if (fits_shared && shared > kSharedBytes) STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, kMaxShared, static_cast<int>(most)));
  const int64_t needed = (problem.experiments * problem.samples + Team::kTeams - 1) / Team::kTeams;
  const int64_t blocks = blocks_of(kernel, needed, Team::kThreads, fits_shared ? shared : 0, device);
  const int64_t teams = blocks * Team::kTeams;
  std::optional<Tensor> scratch;
  if (!fits_shared) scratch = torch::stable::new_empty(like, {teams * bytes}, ScalarType::Byte);
  kernel<<<static_cast<unsigned>(blocks), Team::kThreads, fits_shared ? shared : 0, current_stream(device)>>>(
      problem, teams, data<char>(scratch));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// Uses shared memory if it holds a warp for each of a multiprocessor's kSchedulers.
template <class T>
void launch_lanes(const Problem<T>& problem, const Tensor& like, int32_t device) {
  const int64_t bytes = LaneMatrix<T>::bytes(problem), units = problem.experiments * ((problem.samples + kWarp - 1) / kWarp);
  const int64_t per_multiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  if (kSchedulers * (bytes + kReservedShared) <= per_multiprocessor) {
    const auto kernel = lane_sums_kernel<T, true>;
    const auto most = static_cast<int>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (bytes > kDefaultShared) STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, kMaxShared, most));
    const int64_t blocks = blocks_of(kernel, units, kWarp, bytes, device);
    kernel<<<static_cast<unsigned>(blocks), kWarp, bytes, current_stream(device)>>>(problem, blocks, nullptr);
  } else {
    const int64_t max_blocks = kSchedulers * attribute(cudaDevAttrMultiProcessorCount, device);
    const int64_t blocks = units < max_blocks ? units : max_blocks;
    const Tensor scratch = torch::stable::new_empty(like, {blocks * bytes}, ScalarType::Byte);
    lane_sums_kernel<T, false><<<static_cast<unsigned>(blocks), kWarp, 0, current_stream(device)>>>(
        problem, blocks, data<char>(scratch));
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void sums_on_cuda(Tensor out, Tensor prevalence, Tensor alphas, std::optional<Tensor> weights, Tensor keys,
                  int64_t start) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  common::for_real(out, [&](auto zero) {
    using T = decltype(zero);
    Problem<T> problem = make_problem<T>(out, prevalence, alphas, weights, keys, start);
    if (out.numel() == 0) return;
    const int64_t rows = int64_t(problem.experiments) * problem.rows();
    const int64_t cells = problem.experiments * problem.cells_of_experiment() * int64_t(sizeof(Cell<T>));
    const int64_t groups = int64_t(problem.experiments) * problem.classes * int64_t(sizeof(Group));
    const Tensor table = torch::stable::new_empty(out, {cells + groups + rows}, ScalarType::Byte);
    auto* const bytes = data<char>(table);
    problem.cells = reinterpret_cast<Cell<T>*>(bytes);
    problem.groups = reinterpret_cast<Group*>(bytes + cells);
    problem.modes = reinterpret_cast<int8_t*>(bytes + cells + groups);
    const auto blocks = static_cast<unsigned>((rows + lanes::Warp::kTeams - 1) / lanes::Warp::kTeams);
    prepare_kernel<<<blocks, lanes::Warp::kThreads, 0, current_stream(device)>>>(problem);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
    if (problem.classes <= kLaneClasses) launch_lanes(problem, out, device);
    else if (problem.classes <= kWarpClasses) launch<lanes::Warp>(problem, out, device);
    else launch<lanes::Block<256>>(problem, out, device);
  });
}

void log_gamma_on_cuda(Tensor out, Tensor alpha, Tensor keys, int64_t start) {
  check_log_gamma(out, alpha, keys, start);
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  common::for_real(out, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = out.size(1), cells = out.size(2), samples = out.size(3);
    const int64_t pairs = out.size(0) * rows * ((cells + 1) / 2);
    if (pairs * samples == 0) return;
    const int64_t enough = kListsPerMultiprocessor * attribute(cudaDevAttrMultiProcessorCount, device);
    int64_t part = kMaxPart;
    while (part > kWarp && pairs * ((samples + part - 1) / part) < enough) part /= 2;
    const int64_t lists = pairs * ((samples + part - 1) / part), needed = (lists * kWarp + kListThreads - 1) / kListThreads;
    const int64_t blocks = blocks_of(log_gamma_kernel<T>, needed, kListThreads, 0, device);
    log_gamma_kernel<T><<<static_cast<unsigned>(blocks), kListThreads, 0, current_stream(device)>>>(
        data<const double>(alpha), data<const int64_t>(keys), rows, cells, samples,
        start, part, lists, data<T>(out));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

// Returns the cells of items in ascending order, and the items in that order.
std::pair<Tensor, Tensor> sort_by_cell(const Tensor& cells) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  std::array<StableIValue, 4> stack{from(cells), from(std::optional<bool>(true)), from(int64_t(-1)), from(false)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  return {to<Tensor>(stack[0]), to<Tensor>(stack[1])};
}

void item_sums_on_cuda(Tensor out, Tensor cells, Tensor key, int64_t start) {
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const ItemProblem problem = make_item_problem(out, cells, key, start);
  if (out.numel() == 0) return;
  const auto [sorted, order] = sort_by_cell(cells);
  const Tensor bounds = torch::stable::new_empty(cells, {problem.experiments * (problem.cells + 1)});
  auto* const bounds_data = data<int64_t>(bounds);
  const int64_t ends = problem.experiments * (problem.items + 1);
  bounds_kernel<<<static_cast<unsigned>((ends + 127) / 128), 128, 0, current_stream(device)>>>(
      problem, data<const int64_t>(sorted), bounds_data);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  // One block per cell and 32 samples; above a maximum each block processes several cells.
  const int64_t groups = (problem.samples + kWarp - 1) / kWarp, rows = problem.experiments * problem.cells;
  const int64_t max_blocks = kItemBlocks * attribute(cudaDevAttrMultiProcessorCount, device) / groups + 1;
  item_sums_kernel<<<static_cast<unsigned>(groups * (rows < max_blocks ? rows : max_blocks)), kItemThreads, 0,
                     current_stream(device)>>>(problem, data<const int64_t>(key),
                                               data<const int64_t>(order), bounds_data, groups);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void uniforms_on_cuda(Tensor out, Tensor key, int64_t draw) {
  check_uniforms(out, key, draw);
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (out.numel() == 0) return;
  const auto blocks = static_cast<unsigned>((out.numel() + 4 * 128 - 1) / (4 * 128));
  uniforms_kernel<<<blocks, 128, 0, current_stream(device)>>>(data<const int64_t>(key),
                                                              uint32_t(draw), out.numel(),
                                                              data<double>(out));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace dirichlet

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CUDA, m) {
  m.impl("dirichlet_sums", TORCH_BOX(&dirichlet::sums_on_cuda));
  m.impl("log_gamma", TORCH_BOX(&dirichlet::log_gamma_on_cuda));
  m.impl("item_sums", TORCH_BOX(&dirichlet::item_sums_on_cuda));
  m.impl("uniforms", TORCH_BOX(&dirichlet::uniforms_on_cuda));
}
