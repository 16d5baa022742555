// What the combiners share.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs z (B, h, T, dv) side by side: (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// The same after w_j Z_j: w (h), (B, h) or (B, T, h), of any floating type.
at::Tensor join_weighed(const at::Tensor& z, const at::Tensor& w);

// join_weighed() by gates, which it shows to the observer.
at::Tensor combine_gated(const Context& c, const at::Tensor& z, const at::Tensor& gates);

}  // namespace mh::attention
