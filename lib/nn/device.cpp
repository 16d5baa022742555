// Chooses the CPU or a GPU, loads the CUDA libraries, and copies tensors to the GPU.
#include "nn/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "cuda/cuda_api.h"
#include "nn/aten.h"

namespace mh::nn {

namespace {

// cuda_api: kernels of the GPU; null until open_cuda() has loaded them. emulated_api: kernels that operations on CPU
// tensors call while a ScopedGpuEmulation exists, in tests; otherwise null.
const kernels::CudaApi *cuda_api = nullptr, *emulated_api = nullptr;

Error device_error(const std::string& expected, const std::string& found, const std::string& advice) {
  return {Exit::device, Problem{"--device cuda", expected, found, advice}};
}

void* open_library(const char* name, const char* advice = kBuildAdvice) {
  void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw device_error(std::string("the library ") + name, dlerror(), advice);
  return library;
}

void open_cuda() {
  if (count_gpus() == 0) throw device_error("an NVIDIA GPU and its driver", "none", "use --device cpu");
  open_library("libtorch_cuda.so");
  cuda_api =
      reinterpret_cast<const kernels::CudaApi* (*)()>(open_symbol("libmultihead-cuda.so", kernels::kCudaApiSymbol))();
  if (!at::globalContext().hasCUDA())
    throw device_error("LibTorch with CUDA", "LibTorch initialised without CUDA",
                       "use --device cpu, and report a defect of multihead");
}

// The constants that cached_constant() has copied to a device. Key: name of the device, and values of the constant.
struct CachedConstants {
  std::mutex mutex;
  std::map<std::pair<std::string, std::vector<int64_t>>, at::Tensor> constants;
};
// Returns the cache of the process. The cache is never destroyed, since static objects are destroyed after CUDA has
// shut down, when GPU memory can no longer be freed.
CachedConstants& all_cached_constants() {
  static auto& cache = *new CachedConstants;
  return cache;
}

}  // namespace

// Queries the driver library, which loads much faster than LibTorch's CUDA libraries.
int count_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 0;
  auto initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto get_device_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int num_gpus = 0;
  return initialise != nullptr && get_device_count != nullptr && initialise(0) == 0 && get_device_count(&num_gpus) == 0
             ? num_gpus
             : 0;
}

void* open_symbol(const char* library, const char* symbol, const char* advice) {
  void* address = dlsym(open_library(library, advice), symbol);
  if (address == nullptr)
    throw device_error(std::string(library) + " of this version of multihead", "a library of another version",
                       "rebuild with ./run build");
  return address;
}

at::Device choose_device(const std::string& device_option) {
  if (device_option == "cpu" || (device_option == "auto" && count_gpus() == 0)) return at::kCPU;
  try {
    open_cuda();
  } catch (const Error& error) {
    if (device_option == "cuda") throw;
    log_warning(str("device: CPU; the GPU cannot be used: ", error.what()));
    return at::kCPU;
  }
  log_info("device: GPU");
  return {at::kCUDA, 0};
}

const kernels::CudaApi& cuda_kernels() { return emulated_api != nullptr ? *emulated_api : *cuda_api; }

void* current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

Gpu gpu_of(at::Device device) {
  if (device.is_cuda()) return {cuda_api, current_stream(device)};
  return {device.is_cpu() ? emulated_api : nullptr, nullptr};
}

std::optional<kernels::Dtype> dtype_of(at::ScalarType type) {
  if (type == at::kFloat) return kernels::Dtype::fp32;
  if (type == at::kBFloat16) return kernels::Dtype::bf16;
  if (type == at::kHalf) return kernels::Dtype::fp16;
  return std::nullopt;
}

ScopedGpuEmulation::ScopedGpuEmulation(const kernels::CudaApi& kernels) { emulated_api = &kernels; }
ScopedGpuEmulation::~ScopedGpuEmulation() { emulated_api = nullptr; }

at::Tensor to_device(const at::Tensor& x, at::Device device) {
  if (!device.is_cuda() || !x.is_cpu()) return x.to(device);
  return x.pin_memory().to(device, x.scalar_type(), /*non_blocking=*/true);
}

at::Tensor cached_constant(at::Device device, const std::vector<int64_t>& values) {
  if (device.is_cpu()) return at::tensor(values, at::kLong);
  CachedConstants& cache = all_cached_constants();
  const std::lock_guard lock(cache.mutex);
  at::Tensor& constant = cache.constants[{device.str(), values}];
  if (!constant.defined()) constant = at::tensor(values, at::kLong).to(device);
  return constant;
}

size_t num_cached_constants() {
  CachedConstants& cache = all_cached_constants();
  const std::lock_guard lock(cache.mutex);
  return cache.constants.size();
}

void check_cuda(const char* failure) {
  if (failure != nullptr) throw Error(Exit::device, str("CUDA: ", failure));
}

}  // namespace mh::nn
