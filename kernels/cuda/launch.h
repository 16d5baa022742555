// One thread for each of `count` pieces of work.
#pragma once

#include <cstdint>

namespace mh::kernels {

constexpr int kThreads = 256;

// Blocks of a grid that loops over its work, so that any count fits.
inline unsigned blocks_for(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65535 ? blocks : 65535);
}

inline const char* launched() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace mh::kernels
