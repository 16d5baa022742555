// Where tensors live: --device auto|cpu|cuda. The CUDA half (the tensor library's and libmultihead-cuda.so, the
// project's own kernels) is opened only here, for a GPU, so that a machine without one neither needs it nor waits for
// it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mh::kernels {
struct CudaTable;
enum class Dtype : uint8_t;
}  // namespace mh::kernels

namespace mh::nn {

// auto: the first GPU, else the CPU; where there is a GPU and no CUDA half, the CPU with a warning that says why.
// cuda: the first GPU. Error(device) with the reason where it cannot be used. Call before the first tensor: the tensor
// library remembers a first answer that there is no CUDA.
at::Device choose_device(const std::string& wish);

// A symbol of one of the libraries of the CUDA half, which is opened. Error(device) where it is not there.
void* open_symbol(const char* library, const char* symbol);

// The project's CUDA kernels; choose_device() has returned a GPU.
const kernels::CudaTable& cuda_kernels();
// Where the tensor library's work for a GPU goes now, as CUDA's own handle.
void* current_stream(at::Device device);

// The kernels and the stream for operations on tensors of a device; null for a CPU, which has loops of its own.
struct Gpu {
  const kernels::CudaTable* kernels = nullptr;
  void* stream = nullptr;
  explicit operator bool() const { return kernels != nullptr; }
};
Gpu gpu_of(at::Device device);

// The kernels' name of a type; none for a type that they do not take.
std::optional<kernels::Dtype> dtype_of(at::ScalarType type);

// For tests: while one lives, gpu_of() takes the CPU for a GPU that has these kernels.
class CpuAsGpu {
 public:
  explicit CpuAsGpu(const kernels::CudaTable& kernels);
  ~CpuAsGpu();
  CpuAsGpu(const CpuAsGpu&) = delete;
  CpuAsGpu& operator=(const CpuAsGpu&) = delete;
};

// A tensor of the CPU on the device, without waiting for what the device still does.
at::Tensor to_device(const at::Tensor& x, at::Device device);
// int64 numbers that steps read again and again, such as a layer's choice of heads, on the device: copied there the
// first time and kept as long as the program runs, so only for what takes few values. A recorded pass may read them.
at::Tensor constant_on(at::Device device, const std::vector<int64_t>& values);
// Throws Error(device) for what a kernel of the table returned.
void check_cuda(const char* failure);

}  // namespace mh::nn
