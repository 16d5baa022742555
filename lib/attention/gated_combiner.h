// Base class of combiners that multiply each head by a weight, and functions for the heads and weights of combiners.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Concatenates head outputs z (B, h, T, dv) to (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// Multiplies head j of z (B, hv, T, dv) by its weight in w (hv), (B, hv) or (B, T, hv). w may have any floating-point
// type.
at::Tensor scale_heads(const at::Tensor& z, const at::Tensor& w);

// Returns the product of the weights v and w of heads, each (hv), (B, hv), (B, T, hv) or undefined for weights of 1;
// the product is undefined if both are.
at::Tensor multiply_head_weights(const at::Tensor& v, const at::Tensor& w);

// Observation (Observer::notify_subscribers) of the gates of a combiner, one observation for each combiner with gates:
// (hv), (B, E) or (B, Tq, E), where E is the number of components if the combiner is a mixture, otherwise hv. A
// subscriber may replace `gates` by a tensor of the same shape, which the combiner then uses.
struct GateObservation {
  at::Tensor gates;
  bool is_mixture = false;  // whether the gates are the weights of a mixture, which sum to 1 over its components
};

// Observation (Observer::notify_subscribers) of the factor that multiplies each head output before the output
// projection: (hv), (B, hv) or (B, Tq, hv), the product of the weights of all combiners of the layer. In a mixture the
// factor combines the gates of all components.
struct HeadWeightObservation {
  at::Tensor weights;
};

// Shows gates to the observer as a GateObservation, and returns the gates with the changes that the observer made;
// without an observer, returns `gates`.
at::Tensor show_gates(const Context& c, const at::Tensor& gates, bool is_mixture = false);

// Combiner that only multiplies each head output by its weight from head_weights().
class GatedCombiner : public Combiner {
 public:
  bool only_scales_heads() const final { return true; }
  at::Tensor combine(const Context&, const at::Tensor& scaled_head_outputs) final { return scaled_head_outputs; }
  std::string why_not_fused() const override { return ""; }
};

}  // namespace mh::attention
