// The interface by which an analysis reads, and may replace, the tensors of a layer's heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/layer_spec.h"
#include "attention/variants.h"

namespace mh::attention {

// Object that reads, and may replace, the tensors of heads in a forward pass. A forward pass calls intercept_heads()
// for each side of the heads for which acts_on() is true:
//
//   HeadSide::score   input of the mixer, (B, h, Tq, Tk): probabilities, or logits if the mixer mixes logits; not
//                     called for this side on the fused path or in a layer whose mixer mixes no heads
//   HeadSide::value   head outputs before the first combiner, (B, hv, Tq, dv); on the fused path weights of combiners
//                     may already be applied
//   HeadSide::output  result of the last combiner and input of the output projection, (B, ho, Tq, dv)
//
// An interceptor set with AttentionLayer::set_interceptor() acts on every forward pass of the layer, after the
// observer of the forward pass.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // Returns the tensor that replaces x, the tensor of the heads of this side; by default x. An analysis may call
  // retain_grad() on x, which is part of the autograd graph.
  virtual at::Tensor intercept_heads(HeadSide /*side*/, const LayerSpec&, const at::Tensor& x) { return x; }
  // Returns why a layer with this interceptor needs the composed path; null: the layer may take any path.
  virtual const char* why_composed() const = 0;
  // Returns whether a forward pass calls intercept_heads() for this side. Batch rows are repeated for variants() at the
  // first side for which the result is true. Not called for observers, whose intercept_heads() is called for every
  // side.
  virtual bool acts_on(HeadSide) const { return true; }
  // Returns the variants of the batch rows; null: none. Not called for observers.
  virtual const Variants* variants() const { return nullptr; }
};

}  // namespace mh::attention
