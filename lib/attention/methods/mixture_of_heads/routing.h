// Observation (Observer::notify_subscribers) of the heads that a mixture of heads chooses at each position, and the
// name of the router's parameter.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Name of the parameter of the router R (h, d), without the layer name before it; h: value heads before pruning.
constexpr const char* kRouterName = ".combiner.router.weight";

// Probabilities of the r routed heads, (B, Tq, r), and whether each position chooses the head (1) or not (0), (B, Tq,
// r).
struct RoutingObservation {
  at::Tensor probabilities, chosen_mask;
};

}  // namespace mh::attention
