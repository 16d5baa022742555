// Fixed sinusoidal positions.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::model {

// (length, d): for position p (the first is `first`), sin(p w_k) for k < d/2, then cos(p w_k), with
// w_k = 10000^(-k / (d/2 - 1)). As fairseq, whose first position is 2.
at::Tensor sinusoidal_positions(int64_t first, int64_t length, int64_t width, at::Device device);

}  // namespace mh::model
