// Base class and helpers of combiners that multiply each head by a weight.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Concatenates head outputs z (B, h, T, dv) to (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// Multiplies head j of z (B, hv, T, dv) by its weight in w (hv), (B, hv) or (B, T, hv), and concatenates the heads to
// (B, T, hv dv). w may have any floating-point type.
at::Tensor join_gated_heads(const at::Tensor& z, const at::Tensor& w);

// Observation (Observer::notify_subscribers) of the gates of a combiner: (hv), (B, E) or (B, Tq, E), where E is the
// number of experts if the combiner is a mixture of experts, otherwise hv. A subscriber may replace `gates` by a tensor
// of the same shape, which the combiner then uses.
struct GateObservation {
  at::Tensor gates;
};

// Observation (Observer::notify_subscribers) of the factor that multiplies each head output before the output
// projection: (hv), (B, hv) or (B, Tq, hv). In a mixture of experts, the factor combines the gates of all experts.
struct HeadWeightObservation {
  at::Tensor weights;
};

// Shows the gates, one for each head, to the observer as a GateObservation and as a HeadWeightObservation, and returns
// the gates with the changes that the observer made; without an observer, returns `gates`.
at::Tensor show_gates(const Context& c, const at::Tensor& gates);

// Combiner that multiplies each head output by its weight from head_weights() and concatenates the heads. Does not
// multiply if head_weights() is undefined or the fused path has applied the weights.
class GatedCombiner : public Combiner {
 public:
  at::Tensor combine(const Context& c, const at::Tensor& z) final;
  std::string why_not_fused() const override { return ""; }
};

}  // namespace mh::attention
