// Chooses a template of kernels by a type's name.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// Returns f(x) for an x of the type.
template <class F>
const char* dispatch_dtype(Dtype type, const F& f) {
  return type == Dtype::fp32 ? f(float{}) : type == Dtype::bf16 ? f(Bf16{}) : f(Fp16{});
}

}  // namespace mh::kernels
