// Creates LibTorch's NCCL backend. This file is built as a separate library, libmultihead-nccl.so, because LibTorch's
// CUDA libraries are not linked but loaded at run time, and because a build without nccl.h leaves the library out.
#define USE_C10D_NCCL
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <type_traits>
#include <utility>

#include "distributed/nccl_backend.h"

// c10d has two ways to end an operation that failed or exceeded its time limit, both selected by environment variables
// that the constructor of ProcessGroupNCCL reads. Asynchronous error handling, the default, throws in a watchdog thread
// of c10d, which ends the process by std::terminate(), without the error of the project and its exit status. With
// blocking wait there is no watchdog: Work::wait() itself polls the operation, aborts the communicator after an error
// or after Options::timeout, and throws in the calling thread, as Gloo does. Blocking the host costs little, since the
// callers read results of the sums on the host at once. The variable is overwritten, since with another value errors
// would not end the process as documented.
extern "C" __attribute__((visibility("default"))) c10d::Backend* multihead_nccl_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
  using Nccl = c10d::ProcessGroupNCCL;
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 1);
  auto options = Nccl::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<Nccl>(store, rank, size, std::move(options)).release();
}

static_assert(std::is_same_v<decltype(multihead_nccl_backend), mh::distributed::MakeNcclBackend>);
