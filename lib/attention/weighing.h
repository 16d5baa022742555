// What combiners share that weigh heads one by one.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs z (B, h, T, dv) side by side: (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// The same after w_j Z_j: w (h), (B, h) or (B, T, h), of any floating type.
at::Tensor join_weighed(const at::Tensor& z, const at::Tensor& w);

// What weighs the heads where something does: (h), (B, E) or (B, Tq, E) for E experts, or one weight a head. A stage
// reads `gates` back: a subscriber may put others of the same shape there.
struct GateObservation {
  at::Tensor gates;
};

// What each head's output is multiplied by on its way to the output projection, where something weighs heads: (h),
// (B, h) or (B, Tq, h). Of a mixture of experts what they make together.
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
