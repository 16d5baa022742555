// Dispatch by the element type of a tensor to the CPU kernels for fp32 and bf16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mh::nn {

// Calls f(element) with a value of the C++ type of x's elements: float, or uint16_t for bf16. f selects a kernel by the
// type of `element`.
template <class F>
void dispatch_element_type(const at::Tensor& x, const F& f) {
  if (x.scalar_type() == at::kFloat) f(float{});
  else f(uint16_t{});
}

}  // namespace mh::nn
