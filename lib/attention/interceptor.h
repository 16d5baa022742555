// The hook by which an analysis reads, and may replace, the tensors of a layer's heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/layer_spec.h"
#include "attention/variants.h"

namespace mh::attention {

// A layer has three sides of heads. A forward pass calls its interceptors with the tensor of each side:
//
//   HeadSide::score   input of the mixer, (B, h, Tq, Tk): probabilities, or logits if it mixes those; once per pass,
//                     never without a mixer
//   HeadSide::value   head outputs before the combiner, (B, h, Tq, dv); on the fused path the combiner's weights may
//                     already be applied
//   HeadSide::output  result of the combiner, which the output projection reads, (B, h, Tq, dv)
//
// A layer's own interceptor (AttentionLayer::set_interceptor) acts on every pass, after the observer of the pass.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // Returns the replacement of x. x is part of the autograd graph: an analysis may call retain_grad() on it.
  virtual at::Tensor heads(HeadSide /*side*/, const LayerSpec&, const at::Tensor& x) { return x; }
  // Returns why a layer with this interceptor needs the composed path; null: it works on any path.
  virtual const char* needs_composed() const = 0;
  // Returns whether heads() may change tensors of this side. Used for a layer's own interceptor only, whose variants
  // begin at the first side of a pass that it acts on.
  virtual bool acts_on(HeadSide) const { return true; }
  // Returns the variants of each row of the batch; null: none. Used for a layer's own interceptor only.
  virtual const Variants* variants() const { return nullptr; }
};

}  // namespace mh::attention
