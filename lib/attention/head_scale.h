// What the combiners that weigh heads share.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs z (B, h, T, dv) by gates (h) or (B, T, h), side by side: (B, T, h dv). Shows the gates to the observer.
at::Tensor combine_gated(const Context& c, const at::Tensor& z, const at::Tensor& gates);

}  // namespace mh::attention
