// Observation of the heads that a mixture of heads chooses at each position.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Tensors of the r routed heads, (B, Tq, r): their probabilities, and 1 for a chosen head, else 0.
struct RoutingObservation {
  at::Tensor probabilities, chosen;
};

}  // namespace mh::attention
