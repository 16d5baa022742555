// Dispatch from a Dtype, which is known only at run time, to kernels whose template argument is a C++ type.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// Returns f(x), where x is a zero of the C++ type that `dtype` names.
template <class F>
const char* dispatch_dtype(Dtype dtype, const F& f) {
  return dtype == Dtype::fp32 ? f(float{}) : dtype == Dtype::bf16 ? f(Bf16{}) : f(Fp16{});
}

}  // namespace mh::kernels
