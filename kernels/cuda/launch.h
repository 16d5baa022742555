// Kernel launches through the CUDA runtime, and the texts of their errors.
#pragma once

#include <cstdint>

namespace mh::kernels {

// Returns the description of a CUDA error; null for cudaSuccess.
inline const char* error_string(cudaError_t status) {
  if (status == cudaErrorNoKernelImageForDevice)
    return "expected a GPU that this build has code for, sm_80 or later; found an older GPU; build again with "
           "-Dgpu_targets for this GPU, or use --device cpu";
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
// Returns the description of the last launch error; null if there was none.
inline const char* launch_error() { return error_string(cudaGetLastError()); }

// Launches kernel(arguments…) with `bytes` bytes of dynamic shared memory per block. Returns null, or a description of
// the problem. Launches nothing if the grid is empty.
template <class... Parameters, class... Arguments>
const char* launch(void (*kernel)(Parameters...), dim3 grid, int threads, int bytes, void* stream,
                   const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return nullptr;
  if (grid.y > 65535) return "expected at most 65535 for batch rows times heads; found more; use smaller batches";
  if (bytes > 48 << 10)
    if (const char* problem =
            error_string(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
      return problem;
  kernel<<<grid, threads, bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return launch_error();
}

// Returns an attribute of the current GPU.
inline int attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, name, device);
  return value;
}
// Returns the maximum dynamic shared memory of a block on the current GPU, in bytes.
inline int max_shared_memory() { return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }
inline int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

}  // namespace mh::kernels
