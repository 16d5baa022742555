// The common part of combiners that weigh heads one by one.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs z (B, h, T, dv) side by side: (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// The same after w_j Z_j: w (h), (B, h) or (B, T, h), of any floating type.
at::Tensor join_weighed(const at::Tensor& z, const at::Tensor& w);

// The gates of a stage that weighs heads: (h), (B, E) or (B, Tq, E) for E experts, or one gate a head. The stage reads
// `gates` back: a subscriber may put others of the same shape there.
struct GateObservation {
  at::Tensor gates;
};

// The factor of each head's output before the output projection, where a stage weighs heads: (h), (B, h) or (B, Tq, h).
// For a mixture of experts the factor that all experts together give.
struct WeightObservation {
  at::Tensor weights;
};

// Shows gates of heads, one a head, to the observer, and returns them as it leaves them.
at::Tensor shown_gates(const Context& c, const at::Tensor& gates);

// w_j Z_j side by side, by weights().
class Weighing : public Combiner {
 public:
  at::Tensor combine(const Context& c, const at::Tensor& z) final;
  std::string unfused_because() const override { return ""; }
};

}  // namespace mh::attention
