// MH_HOST_DEVICE declares a function that both CPU loops and GPU kernels call. On a CPU the function is inlined into
// its caller, since each SIMD level (cpu/simd.h) needs a copy compiled for its instruction set.
#pragma once

#ifdef __CUDACC__
#define MH_HOST_DEVICE __host__ __device__ inline
#else
#define MH_HOST_DEVICE inline __attribute__((always_inline))
#endif
