// The launcher of kernel bodies in the emulator; cuda/attention_launches.h documents its interface.
#pragma once

#include "cuda/attention_launches.h"
#include "emulator/host_thread.h"

namespace host {

struct Launcher {
  EmulatedGpu& gpu;
  int max_shared_bytes = 163 << 10;  // shared memory of a block, as on an A100
  template <class Body>
  const char* operator()(mh::kernels::Grid grid, int threads, size_t shared_bytes, const Body& body) const {
    if (threads > Body::kThreads) return "expected at most Body::kThreads threads; found more; launch fewer threads";
    if (shared_bytes > static_cast<size_t>(max_shared_bytes))
      return "expected a launch within the shared memory of a block; found a larger one; launch with fewer bytes";
    if (const char* problem = mh::kernels::grid_problem(grid)) return problem;
    if (grid.x > 0 && grid.y > 0)
      gpu.run({grid.x, grid.y, grid.z}, threads, std::max<size_t>(shared_bytes, 16),
              [&](const Thread& thread, void* memory) { body(thread, memory); });
    return nullptr;
  }
  int max_shared_memory() const { return max_shared_bytes; }
  static int num_multiprocessors() { return 108; }  // as on an A100
};

}  // namespace host
