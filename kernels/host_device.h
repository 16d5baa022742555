// MH_HOST_DEVICE: a function that loops on CPUs and kernels on GPUs share. On a CPU it is inlined into its caller,
// since each level (cpu/simd.h) must have its own code.
#pragma once

#ifdef __CUDACC__
#define MH_HOST_DEVICE __host__ __device__ inline
#else
#define MH_HOST_DEVICE inline __attribute__((always_inline))
#endif
