// The elementwise functions that follow a matrix product.
#pragma once

#include <cstdint>

namespace mh::kernels {

enum class Activation : uint8_t {
  none,
  relu,
  gelu,       // exact GELU, x Φ(x), with Φ the distribution function of the normal distribution
  gelu_tanh,  // the approximation of GPT-2, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))
  silu        // x σ(x), also called swish
};

}  // namespace mh::kernels
