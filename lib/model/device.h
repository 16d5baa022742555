// Where tensors live: --device auto|cpu|cuda. The CUDA half (the tensor library's and libmultihead-cuda.so, the
// project's own kernels) is opened only here, for a GPU, so that a machine without one neither needs it nor waits for
// it.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace mh::kernels {
struct CudaTable;
}

namespace mh::model {

// auto: the first GPU, else the CPU; where there is a GPU and no CUDA half, the CPU with a warning that says why.
// cuda: the first GPU. Error(device) with the reason where it cannot be used. Call before the first tensor: the tensor
// library remembers a first answer that there is no CUDA.
at::Device choose_device(const std::string& wish);

// A symbol of one of the libraries of the CUDA half, which is opened. Error(device) where it is not there.
void* open_symbol(const char* library, const char* symbol);

// The project's CUDA kernels; choose_device() has returned a GPU.
const kernels::CudaTable& cuda_kernels();
// Throws Error(device) for what a kernel of the table returned.
void check_cuda(const char* failure);

}  // namespace mh::model
