// A template of kernels by the name of its type.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// f(a number of the type)
template <class F>
const char* by_type(Dtype type, const F& f) {
  return type == Dtype::fp32 ? f(float{}) : type == Dtype::bf16 ? f(Bf16{}) : f(Fp16{});
}

}  // namespace mh::kernels
