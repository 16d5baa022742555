// Observation (Observer::show) of the heads that a mixture of heads chooses at each position.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Probabilities of the r routed heads, (B, Tq, r), and whether each position chooses the head (1) or not (0), (B, Tq,
// r).
struct RoutingObservation {
  at::Tensor probabilities, mask;
};

}  // namespace mh::attention
