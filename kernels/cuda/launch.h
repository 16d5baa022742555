// Launches of kernels, and CUDA's error messages.
#pragma once

#include <cstdint>

namespace mh::kernels {

inline const char* words(cudaError_t status) {
  if (status == cudaErrorNoKernelImageForDevice)
    return "expected one of the GPUs that this build has code for (sm_80 and later); found an older one; build again "
           "with its -Dgpu_targets, or use --device cpu";
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
inline const char* launched() { return words(cudaGetLastError()); }

// Launches kernel(given…) with `bytes` of shared memory for each block.
template <class... Wanted, class... Given>
const char* launch(void (*kernel)(Wanted...), dim3 grid, int threads, int bytes, void* stream, const Given&... given) {
  if (grid.x == 0 || grid.y == 0) return nullptr;
  if (grid.y > 65535) return "expected at most 65535 rows and heads together; found more; take smaller batches";
  if (bytes > 48 << 10)
    if (const char* problem = words(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
      return problem;
  kernel<<<grid, threads, bytes, static_cast<cudaStream_t>(stream)>>>(given...);
  return launched();
}

// Return attributes of the present GPU.
inline int attribute(cudaDeviceAttr of) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, of, device);
  return value;
}
inline int most_shared_memory() {
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}  // maximum shared memory of a block, in bytes
inline int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

}  // namespace mh::kernels
