// Scale factors of heads that are not parameters, for ablation and for measuring the importance of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/layer.h"

namespace mh::attention {

// Scale factors of the heads of each side (attention/interceptor.h): (h), (B, h) or (B, h, Tq); undefined: not scaled.
struct HeadScales {
  at::Tensor score, value, output;
  // With variants the scales are (count, h): row f scales the heads of variant f.
  Variants variants = {};

  at::Tensor& of(HeadSide side) { return side == HeadSide::score ? score : side == HeadSide::value ? value : output; }
  const at::Tensor& of(HeadSide side) const {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
};

// Sets `scales` as the interceptor of the layer, replacing an earlier one; removes the interceptor if no scale is
// defined and there are no variants. Throws Error(usage) for a score scale in a layer that mixes no heads.
void set_head_scales(AttentionLayer& layer, HeadScales scales);

// Returns the scales of the layer; all undefined if it has no interceptor. Throws std::logic_error if its interceptor
// is of another type.
HeadScales head_scales(const AttentionLayer& layer);

}  // namespace mh::attention
