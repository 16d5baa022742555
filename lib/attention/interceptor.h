// The one point at which an analysis sees what the heads of a layer give and may replace it.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/shape.h"
#include "attention/variants.h"

namespace mh::attention {

// A layer has three sides of heads, and a forward pass gives the tensor of each to its interceptors:
//
//   HeadSide::score   what a mixer is about to mix: probabilities, or logits where it mixes those, (B, h, Tq, Tk); once
//                     a pass, and not without a mixer
//   HeadSide::value   head outputs, before the combiner, (B, h, Tq, dv); on the fused path they may be multiplied by
//                     the combiner's weights already
//   HeadSide::output  what the combiner gives to the output projection, (B, h, Tq, dv)
//
// A layer's own interceptor (AttentionLayer::set_interceptor) acts on every pass, after the observer of the pass.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // Returns the replacement of x. x is part of the graph: an analysis may call retain_grad() on it.
  virtual at::Tensor heads(HeadSide /*side*/, const Shape&, const at::Tensor& x) { return x; }
  // Why a layer with it takes the composed path; null: any path serves.
  virtual const char* needs_composed() const = 0;
  // Whether heads() of a side may return anything but x. Read of a layer's own interceptor, whose variants begin at
  // the first side of a pass that it acts on.
  virtual bool acts_on(HeadSide) const { return true; }
  // The variants of each row that it makes; null: none. Read of a layer's own interceptor.
  virtual const Variants* variants() const { return nullptr; }
};

}  // namespace mh::attention
