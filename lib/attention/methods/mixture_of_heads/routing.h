// What a mixture of heads shows of the choice that positions make.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Of the r heads to choose from, (B, Tq, r): their probabilities, and 1 where a head is chosen, else 0.
struct RoutingObservation {
  at::Tensor probabilities, chosen;
};

}  // namespace mh::attention
