// Base class and helpers of combiners that multiply each head by a weight.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Concatenates head outputs z (B, h, T, dv) to (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// Concatenates the weighted head outputs w_j Z_j; w (h), (B, h) or (B, T, h), of any floating-point type.
at::Tensor join_gated_heads(const at::Tensor& z, const at::Tensor& w);

// Observation of the gates of a combiner: (h), (B, E) or (B, Tq, E); with one gate per head E = h, with experts E is
// their number. The stage reads `gates` back: a subscriber may replace them by gates of the same shape.
struct GateObservation {
  at::Tensor gates;
};

// Observation of the factor of each head's output before the output projection: (h), (B, h) or (B, Tq, h). For a
// mixture of experts it is the total factor of the mixture.
struct WeightObservation {
  at::Tensor weights;
};

// Shows gates, one for each head, to the observer, and returns them with the observer's changes.
at::Tensor shown_gates(const Context& c, const at::Tensor& gates);

// Concatenates the weighted head outputs w_j Z_j, with w from weights().
class GatedCombiner : public Combiner {
 public:
  at::Tensor combine(const Context& c, const at::Tensor& z) final;
  std::string why_not_fused() const override { return ""; }
};

}  // namespace mh::attention
