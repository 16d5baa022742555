// Ceiling division and rounding up, for numbers of blocks, tiles and work items, on CPUs and GPUs. The result has
// the common arithmetic type of the operands.
#pragma once

#include "host_device.h"

namespace mh {

// Returns ⌈a / b⌉ for a ≥ 0, b > 0. 64-bit operands may be so large that a + b overflows, so the remainder decides
// whether to round up. 32-bit operands are small sizes; for these, adding b - 1 takes fewer instructions on a GPU.
template <class A, class B>
MH_HOST_DEVICE constexpr auto ceil_div(A a, B b) {
  if constexpr (sizeof(a + b) > sizeof(int)) return a / b + (a % b != 0);
  else return (a + b - 1) / b;
}

// Returns n rounded up to a multiple of `multiple`, for n ≥ 0, multiple > 0.
template <class N, class M>
MH_HOST_DEVICE constexpr auto round_up(N n, M multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace mh
