// Dispatch by the element type of a tensor to the CPU kernels, which exist for fp32 and bf16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mh::nn {

// Returns whether CPU kernels support the device and the type of x.
inline bool has_cpu_kernel(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Calls f(element) with a value of the C++ type of x's elements: float, or uint16_t for bf16. f selects a kernel by the
// type of `element`.
template <class F>
void dispatch_element_type(const at::Tensor& x, const F& f) {
  if (x.scalar_type() == at::kFloat) f(float{});
  else f(uint16_t{});
}

}  // namespace mh::nn
