// Launches of kernels, and CUDA's error messages.
#pragma once

#include <cstdint>

namespace mh::kernels {

inline const char* error_string(cudaError_t status) {
  if (status == cudaErrorNoKernelImageForDevice)
    return "expected one of the GPUs that this build has code for (sm_80 and later); found an older one; build again "
           "with its -Dgpu_targets, or use --device cpu";
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
inline const char* launch_error() { return error_string(cudaGetLastError()); }

// Launches kernel(arguments…) with `bytes` of shared memory for each block.
template <class... Parameters, class... Arguments>
const char* launch(void (*kernel)(Parameters...), dim3 grid, int threads, int bytes, void* stream,
                   const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return nullptr;
  if (grid.y > 65535) return "expected at most 65535 rows and heads together; found more; take smaller batches";
  if (bytes > 48 << 10)
    if (const char* problem =
            error_string(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
      return problem;
  kernel<<<grid, threads, bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return launch_error();
}

// Returns an attribute of the present GPU.
inline int attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, name, device);
  return value;
}
// Returns the maximum shared memory of a block, in bytes.
inline int max_shared_memory() { return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }
inline int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

}  // namespace mh::kernels
