// Scales of what heads give that are no parameters, for ablation and for the importance of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/layer.h"

namespace mh::attention {

// Each is (h), (B, h) or (B, h, Tq), or undefined; h of its side (attention/interceptor.h).
struct HeadScales {
  at::Tensor score, value, output;
  // With variants, scales are (count, h): a block of rows under each.
  Variants variants = {};

  at::Tensor& of(HeadSide side) { return side == HeadSide::score ? score : side == HeadSide::value ? value : output; }
  const at::Tensor& of(HeadSide side) const {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
};

// Makes `scales` the interceptor of the layer, in place of an earlier one; removes it where no scale is defined and
// there are no variants. Error(usage) for a score scale in a layer that mixes no heads.
void set_head_scales(AttentionLayer& layer, HeadScales scales);

// The scales of the layer; none where it has no interceptor. std::logic_error where it has another one.
HeadScales head_scales(const AttentionLayer& layer);

}  // namespace mh::attention
