// Dispatch from a Dtype, which is known only at run time, to kernels whose template argument is a C++ type.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// Returns f(x), where x is a zero of the C++ type that `type` names.
template <class F>
const char* dispatch_dtype(Dtype type, const F& f) {
  return type == Dtype::fp32 ? f(float{}) : type == Dtype::bf16 ? f(Bf16{}) : f(Fp16{});
}

}  // namespace mh::kernels
