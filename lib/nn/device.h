// The device of tensors (--device auto|cpu|cuda), and access to CUDA. LibTorch's CUDA libraries and
// libmultihead-cuda.so (our kernels) are loaded here only, and only for a GPU, so that a machine without one neither
// needs them nor waits for them.
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

// Chooses a device. auto: the first GPU, else the CPU; if there is a GPU but the CUDA libraries cannot be loaded, the
// CPU with a warning that says why. cuda: the first GPU; throws Error(device) with the reason if it cannot be used.
// Call it before the first tensor: LibTorch remembers its first answer that there is no CUDA.
at::Device choose_device(const std::string& requested);

// Loads a CUDA library and returns the address of a symbol. Throws Error(device) if one of them is missing.
void* open_symbol(const char* library, const char* symbol);

// Returns our CUDA kernels; choose_device() must have returned a GPU.
const kernels::CudaApi& cuda_kernels();
// Returns the current CUDA stream of LibTorch on the device (cudaStream_t).
void* current_stream(at::Device device);

// The kernels and the stream for operations on tensors of a device; null on a CPU, where operations use the CPU's
// kernels.
struct Gpu {
  const kernels::CudaApi* kernels = nullptr;
  void* stream = nullptr;
  explicit operator bool() const { return kernels != nullptr; }
};
Gpu gpu_of(at::Device device);

// Returns the kernels' name of a type; empty if the kernels do not take it.
std::optional<kernels::Dtype> dtype_of(at::ScalarType type);

// For tests: during the lifetime of this object, gpu_of() treats the CPU as a GPU with these kernels.
class CpuAsGpu {
 public:
  explicit CpuAsGpu(const kernels::CudaApi& kernels);
  ~CpuAsGpu();
  CpuAsGpu(const CpuAsGpu&) = delete;
  CpuAsGpu& operator=(const CpuAsGpu&) = delete;
};

// Copies a CPU tensor to the device without waiting for pending work of the device.
at::Tensor to_device(const at::Tensor& x, at::Device device);
// Returns int64 values on the device that steps read repeatedly, such as a layer's choice of heads. The first call
// copies them, and the copy is cached until the program ends, so the set of different values must be small. CUDA graphs
// may read the copy.
at::Tensor constant_on(at::Device device, const std::vector<int64_t>& values);
// Throws Error(device) if a kernel of the table returned a failure (not null).
void check_cuda(const char* failure);

}  // namespace mh::nn
