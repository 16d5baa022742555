// Kernel launches through the CUDA runtime, and the texts of their errors.
#pragma once

#include <cstdint>

#include "cuda/grid.h"

namespace mh::kernels {

// Returns the description of a CUDA error; null for cudaSuccess.
inline const char* error_string(cudaError_t status) {
  if (status == cudaErrorNoKernelImageForDevice)
    return "expected a GPU that this build has code for; found a GPU of another architecture; run meson configure "
           "build "
           "-Dgpu_targets=sm_80,sm_90 and ninja -C build, or use --device cpu if the GPU is older than sm_80";
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
// Returns the description of the last error of the CUDA runtime in this thread, and clears the error; null if there was
// none.
inline const char* launch_error() { return error_string(cudaGetLastError()); }

// Launches kernel(arguments…) with `shared_bytes` bytes of dynamic shared memory per block. Returns null, or a
// description of the problem. Launches nothing if the grid is empty.
template <class... Parameters, class... Arguments>
const char* launch(void (*kernel)(Parameters...), const Grid& grid, int threads, int shared_bytes, void* stream,
                   const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return nullptr;
  if (const char* problem = grid_problem(grid)) return problem;
  if (shared_bytes > 48 << 10)
    if (const char* problem =
            error_string(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes)))
      return problem;
  kernel<<<dim3(grid.x, grid.y, grid.z), threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return launch_error();
}

// Sets `value` to an attribute of the current GPU. Returns null, or a description of the problem.
inline const char* read_attribute(cudaDeviceAttr name, int& value) {
  int device = 0;
  if (const char* problem = error_string(cudaGetDevice(&device))) return problem;
  return error_string(cudaDeviceGetAttribute(&value, name, device));
}
// Return the maximum dynamic shared memory of a block on the current GPU, in bytes, and the number of multiprocessors
// of this GPU; 0 if the attribute cannot be read, which CudaApi::device_problem() reports.
inline int max_shared_memory() {
  int bytes = 0;
  return read_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, bytes) == nullptr ? bytes : 0;
}
inline int num_multiprocessors() {
  int count = 0;
  return read_attribute(cudaDevAttrMultiProcessorCount, count) == nullptr ? count : 0;
}

}  // namespace mh::kernels
