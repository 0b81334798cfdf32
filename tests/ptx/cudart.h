// The CUDA runtime for a card that is none: launches run the translated kernels on the CPU, within the card's limits, and
// fail as CUDA's do. The end of every translated file.
//
// Also what the operators ask torch about CUDA: the current stream, the current device, and the texts of errors. Tensors
// whose data they ask for become memory that threads may use, until the operator ends.
#pragma once
#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <dlfcn.h>

#include <map>
#include <utility>

struct Card {
  int64_t multiprocessors, for_block, for_all;  // bytes of shared memory, for one block and for all of a multiprocessor
};
constexpr int64_t kAsked = 48 * 1024;    // without asking
constexpr int64_t kReserved = 1024;      // of a multiprocessor's shared memory, for each block
constexpr int64_t kResident = 512;       // threads at once on a multiprocessor: as with 128 registers each
constexpr uintptr_t kStream = 0x5151;    // the current one

struct alignas(16) Vector {
  char bytes[16];
};
struct Asked {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
static Card card{132, 232448, 233472};
static std::map<const void*, const char*>& names() {  // of kernels: they are registered before other statics are made
  static std::map<const void*, const char*> names;
  return names;
}
static std::map<const void*, int64_t> allowed;  // dynamic shared memory
static Asked asked;
static int64_t issued;               // instructions, to warps: see count
static std::string failure, history;  // history: a line for each call that changes something

static cudaError_t fails(const std::string& why) {
  failure = why;
  return cudaErrorLaunchFailure;
}

static const Kernel* kernel_of(const void* host) {
  for (const Kernel& kernel : kKernels)
    if (names().count(host) && !strcmp(kernel.name, names()[host])) return &kernel;
  std::abort();  // translate.py has missed it
}

// A warp enters a basic block as often as that one of its lanes that does so most.
static int64_t count(const Kernel& kernel, std::vector<uint32_t>& entered) {
  const size_t blocks = kernel.sizes.size();
  int64_t instructions = 0;
  for (size_t warp = 0; warp < entered.size(); warp += 32 * blocks)
    for (size_t k = 0; k < blocks; ++k) {
      uint32_t most = 0;
      for (size_t lane = 0; lane < 32; ++lane) most = std::max(most, entered[warp + lane * blocks + k]);
      instructions += int64_t(most) * kernel.sizes[k];
    }
  std::fill(entered.begin(), entered.end(), 0);
  return instructions;
}

static cudaError_t launch(const void* host, dim3 grid, dim3 block, void** arguments, size_t bytes, void* stream) {
  const Kernel& kernel = *kernel_of(host);
  history += std::string("launch ") + kernel.name + " " + std::to_string(grid.x) + " " + std::to_string(block.x) + " " +
             std::to_string(bytes) + "\n";
  const int64_t limit = allowed.count(host) ? allowed[host] : kAsked - kernel.fixed;
  if (reinterpret_cast<uintptr_t>(stream) != kStream) return fails("not on the current stream");
  if (grid.x == 0 || grid.x > 0x7fffffffu || grid.y != 1 || grid.z != 1) return fails("an invalid grid");
  if (block.x > kernel.most || block.x % 32 || block.y != 1 || block.z != 1) return fails("an invalid block");
  if (int64_t(bytes) > limit)
    return fails(std::to_string(bytes) + " bytes of shared memory, of which " + std::to_string(limit) + " may be used");
  std::vector<Vector> parameters(kernel.parameters / sizeof(Vector) + 1);
  auto* const first = reinterpret_cast<char*>(parameters.data());
  for (size_t k = 0; k < kernel.layout.size(); ++k)
    memcpy(first + kernel.layout[k].begin, arguments[k], kernel.layout[k].size);
  std::vector<Vector> in_block((kernel.fixed + bytes) / sizeof(Vector) + 1);
  shared.begin = reinterpret_cast<uint64_t>(in_block.data());
  shared.end = shared.begin + kernel.fixed + bytes;
  const std::vector<Span> tensors = memory;
  memory.push_back(shared);
  memory.push_back({reinterpret_cast<uint64_t>(first), reinterpret_cast<uint64_t>(first) + kernel.parameters});
  std::vector<uint32_t> entered(block.x * kernel.sizes.size());
  const Launch all{reinterpret_cast<uint64_t>(first), block.x, grid.x, entered.data()};
  try {
    for (unsigned b = 0; b < grid.x; ++b) {
      memset(in_block.data(), int(b * 5 + 0x37), kernel.fixed + bytes);  // what other blocks have left there
      lanes::run_block(b, int(block.x), [&] { kernel.run(all); });
      issued += count(kernel, entered);
    }
  } catch (const std::runtime_error& error) {
    fails(std::string(kernel.name) + ", " + error.what());
  }
  memory = tensors;
  return failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

#define VISIBLE extern "C" __attribute__((visibility("default")))
VISIBLE void ptx_card(int64_t multiprocessors, int64_t for_block, int64_t for_all) {
  card = {multiprocessors, for_block, for_all};
  allowed.clear();
}
VISIBLE int64_t ptx_instructions() { return std::exchange(issued, 0); }
// Since it was last asked for.
VISIBLE const char* ptx_history() {
  static std::string last;
  last.swap(history);
  history.clear();
  return last.c_str();
}

extern "C" {
void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  names()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t bytes, CUstream_st* stream) {
  asked = {grid, block, bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void* stream) {
  *grid = asked.grid;
  *block = asked.block;
  *bytes = asked.shared;
  *static_cast<void**>(stream) = asked.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = cudaKernel_t(host);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 grid, dim3 block, void** arguments, size_t bytes, cudaStream_t s) {
  return launch(f, grid, block, arguments, bytes, s);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t bytes, cudaStream_t s) {
  return launch(f, grid, block, arguments, bytes, s);
}
cudaError_t cudaGetLastError() { return failure.empty() ? cudaSuccess : cudaErrorLaunchFailure; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  if (which == cudaDevAttrMultiProcessorCount) *value = int(card.multiprocessors);
  else if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = int(card.for_block);
  else if (which == cudaDevAttrMaxSharedMemoryPerMultiprocessor) *value = int(card.for_all);
  else return fails("an attribute of the card that is not known here");
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute which, int value) {
  history += "allow " + std::string(kernel_of(host)->name) + " " + std::to_string(value) + "\n";
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value + kernel_of(host)->fixed > card.for_block)
    return fails(std::to_string(value) + " bytes of shared memory, more than the card has");
  allowed[host] = value;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   size_t bytes, unsigned) {
  const int64_t of_block = int64_t(bytes) + kernel_of(host)->fixed + kReserved;
  *blocks = int(std::min(card.for_all / of_block, kResident / threads));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads, size_t bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, bytes, 0);
}

// Torch.

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
  *stream = reinterpret_cast<void*>(kStream);
  return AOTI_TORCH_SUCCESS;
}
AOTITorchError aoti_torch_create_device_guard(int32_t, DeviceGuardHandle* guard) {
  *guard = nullptr;
  memory.clear();
  failure.clear();
  return AOTI_TORCH_SUCCESS;
}
AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle) {
  memory.clear();
  return AOTI_TORCH_SUCCESS;
}
AOTITorchError torch_c10_cuda_check_msg(int32_t error, const char*, const char*, uint32_t, bool, char** text) {
  *text = error ? strdup(failure.c_str()) : nullptr;
  if (error) failure.clear();
  return AOTI_TORCH_SUCCESS;
}
void torch_c10_cuda_free_error_msg(char* text) { free(text); }

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data) {
  static const auto real = decltype(&aoti_torch_get_data_ptr)(dlsym(RTLD_NEXT, "aoti_torch_get_data_ptr"));
  const AOTITorchError error = real(tensor, data);
  int64_t bytes = 0, offset = 0;
  int32_t type = 0;
  aoti_torch_get_storage_size(tensor, &bytes);
  aoti_torch_get_storage_offset(tensor, &offset);
  aoti_torch_get_dtype(tensor, &type);
  const auto first = reinterpret_cast<uint64_t>(*data) - offset * aoti_torch_dtype_element_size(type);
  memory.push_back({first, first + bytes});
  return error;
}
}
