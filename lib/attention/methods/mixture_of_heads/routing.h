// The choice of heads of a mixture of heads at each position, as observers see it.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Of the r heads to choose from, (B, Tq, r): their probabilities, and 1 where a head is chosen, else 0.
struct RoutingObservation {
  at::Tensor probabilities, chosen;
};

}  // namespace mh::attention
