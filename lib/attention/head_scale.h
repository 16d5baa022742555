// What the combiners that weigh heads share.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs side by side: z (B, h, T, dv) -> (B, T, h dv).
inline at::Tensor join_heads(const at::Tensor& z) {
  return z.transpose(1, 2).reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
}

// Head outputs z (B, h, T, dv) by gates (h), (B, 1, h) or (B, T, h), side by side: (B, T, h dv). Shows the gates to the
// observer.
at::Tensor combine_gated(const Context& c, const at::Tensor& z, const at::Tensor& gates);

}  // namespace mh::attention
