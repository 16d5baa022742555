// The launcher of kernel bodies on a GPU, for all kernels except attention (attention.cu.in).
// tests/emulator/host_launcher.h runs the same bodies on a CPU.
#pragma once

#include "cuda/dispatch_dtype.h"
#include "cuda/launch.h"
#include "cuda/thread.h"

namespace mh::kernels {

// The kernel that runs a body, a function object that holds the kernel's arguments.
template <class Body>
__global__ void __launch_bounds__(Body::kThreads) run(const __grid_constant__ Body body) {
  extern __shared__ __align__(16) unsigned char memory[];
  body(GpuThread{}, memory);
}

// Launches body(thread, shared memory) for each thread of a grid, on the CUDA stream `stream`. Returns null, or a
// description of the problem. threads: number of threads of a block; shared_bytes: shared memory of a block in bytes.
struct Launcher {
  void* stream;
  template <class Body>
  const char* operator()(Grid grid, int threads, size_t shared_bytes, const Body& body) const {
    return launch(run<Body>, grid, threads, static_cast<int>(shared_bytes), stream, body);
  }
};

}  // namespace mh::kernels
