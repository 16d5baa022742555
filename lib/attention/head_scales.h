// Scale factors of heads for ablation and for measuring the importance of heads. Scale factors are set by the caller
// and are not parameters of the model.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/layer.h"

namespace mh::attention {

// Scale factors of the n score, value or output heads of a layer (HeadSide): (n), (B, n) or (B, n, Tq). An undefined
// tensor leaves the heads of its side unscaled.
struct HeadScales {
  at::Tensor score, value, output;
  // If variants.count > 0, the scale factors are (variants.count, n), and row f scales the heads of variant f.
  Variants variants = {};

  at::Tensor& scales_of(HeadSide side) {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
  const at::Tensor& scales_of(HeadSide side) const {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
};

// Sets an interceptor of the layer that applies `scales`, and replaces an earlier interceptor. Removes the interceptor
// if no scale factor is defined and there are no variants. Throws Error(usage) for scale factors of score heads in a
// layer whose mixer mixes no heads.
void set_head_scales(AttentionLayer& layer, HeadScales scales);

// Returns the scale factors that set_head_scales() has set; all undefined if the layer has no interceptor. Throws
// std::logic_error if the layer has an interceptor of another type.
HeadScales head_scales(const AttentionLayer& layer);

}  // namespace mh::attention
