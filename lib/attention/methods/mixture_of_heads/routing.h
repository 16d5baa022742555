// Observation (Observer::show) of the heads that a mixture of heads chooses at each position, and the name of the
// router's parameter.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Parameter name of the router R (h, d), after the name of the layer.
constexpr const char* kRouter = ".combiner.router.weight";

// Probabilities of the r routed heads, (B, Tq, r), and whether each position chooses the head (1) or not (0), (B, Tq,
// r).
struct RoutingObservation {
  at::Tensor probabilities, mask;
};

}  // namespace mh::attention
