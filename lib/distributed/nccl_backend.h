// Collective operations on tensors on GPUs by NCCL. LibTorch's CUDA libraries contain the backend, so only
// libmultihead-nccl.so, which is loaded at run time, links it and includes headers of NCCL.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace mh::distributed {

// Returns the backend of process `rank` of a job of `size` processes, each with a GPU of its own, for tensors on the
// GPU that choose_device() has returned. The first operation connects the GPUs; all processes must then use the same
// store. wait() of an operation blocks the host until the GPU has completed the operation, and throws an exception of
// LibTorch if NCCL fails or if the operation takes longer than `timeout`. Loads libmultihead-nccl.so; throws
// Error(device) if the library is missing.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout);

// The symbol of libmultihead-nccl.so that make_nccl_backend() calls, a function with the arguments of
// make_nccl_backend(). The caller owns the reference to the returned backend.
constexpr const char* kNcclBackendSymbol = "multihead_nccl_backend";
using MakeNcclBackend = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       std::chrono::milliseconds timeout);

}  // namespace mh::distributed
