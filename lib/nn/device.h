// Selects the CPU or a GPU for all tensors (--device auto|cpu|cuda) and gives access to the CUDA kernels. LibTorch's
// CUDA libraries and libmultihead-cuda.so (the project's kernels) are loaded only by device.cpp, and only for a GPU, so
// that a machine without a GPU neither needs the libraries nor spends time on loading them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mh::kernels {
struct CudaApi;
enum class Dtype : uint8_t;
}  // namespace mh::kernels

namespace mh::nn {

// Returns the device for the value of --device. auto: the first GPU, or the CPU if there is no GPU; if there is a GPU
// but the CUDA libraries cannot be loaded, the CPU, with a warning that gives the reason. cpu: the CPU. cuda: the first
// GPU; throws Error(device) with the reason if the GPU cannot be used. Must be called before the first tensor is
// created: LibTorch checks for CUDA once and caches a negative result.
at::Device choose_device(const std::string& device_option);

// Returns the number of GPUs that the driver reports; 0 without a driver. The first call in a process initialises the
// driver, which then ignores later changes of CUDA_VISIBLE_DEVICES.
int count_gpus();

constexpr const char* kBuildAdvice = "run ./run build on a machine with a GPU";
// Loads the shared library `library` and returns the address of `symbol` in it. Throws Error(device) if the library,
// with the advice `advice`, or the symbol is missing.
void* open_symbol(const char* library, const char* symbol, const char* advice = kBuildAdvice);

// Returns the table of the project's CUDA kernels. Valid only after choose_device() has returned a GPU, or while a
// ScopedGpuEmulation exists.
const kernels::CudaApi& cuda_kernels();
// Returns LibTorch's current CUDA stream on `device`, a cudaStream_t.
void* current_stream(at::Device device);

// The table of GPU kernels and the CUDA stream (cudaStream_t) on which to launch them. For a CPU, both pointers are
// null and operations call the CPU kernels, except while a ScopedGpuEmulation exists.
struct Gpu {
  const kernels::CudaApi* kernels = nullptr;
  void* stream = nullptr;
  explicit operator bool() const { return kernels != nullptr; }
};
// Returns the kernels and the current stream for operations on tensors on `device`.
Gpu gpu_of(at::Device device);

// Returns the element type of the kernels that corresponds to a LibTorch type; empty if the kernels do not support the
// type.
std::optional<kernels::Dtype> dtype_of(at::ScalarType type);

// While an object of this class exists, cuda_kernels() returns `kernels`, and gpu_of() of a CPU returns `kernels` and a
// null stream. Used by tests.
class ScopedGpuEmulation {
 public:
  explicit ScopedGpuEmulation(const kernels::CudaApi& kernels);
  ~ScopedGpuEmulation();
  ScopedGpuEmulation(const ScopedGpuEmulation&) = delete;
  ScopedGpuEmulation& operator=(const ScopedGpuEmulation&) = delete;
};

// Returns x on `device`. A copy from the CPU to a GPU goes through pinned memory and does not wait for pending kernels.
at::Tensor to_device(const at::Tensor& x, at::Device device);
// Returns `values` as an int64 tensor on `device`, for constants that every forward pass needs, such as the indices of
// a pruned layer's heads. For a device other than the CPU, the first call copies the values and caches the copy until
// the program ends, so callers must pass few distinct vectors, and use to_device() for values drawn at random. CUDA
// graphs may read the cached copy.
at::Tensor cached_constant(at::Device device, const std::vector<int64_t>& values);
// Returns the number of constants that cached_constant() has cached, over all devices. Used by tests.
size_t num_cached_constants();
// Throws Error(device) if `failure`, the return value of a kernel of CudaApi, is an error message; null means success.
void check_cuda(const char* failure);

}  // namespace mh::nn
