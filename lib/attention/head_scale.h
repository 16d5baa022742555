// What combiners share that weigh heads one by one.
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Head outputs z (B, h, T, dv) side by side: (B, T, h dv).
at::Tensor join_heads(const at::Tensor& z);

// The same after w_j Z_j: w (h), (B, h) or (B, T, h), of any floating type.
at::Tensor join_weighed(const at::Tensor& z, const at::Tensor& w);

// Gates, as the observer leaves them.
at::Tensor shown_gates(const Context& c, const at::Tensor& gates);

// w_j Z_j side by side, by weights().
class Weighing : public Combiner {
 public:
  at::Tensor combine(const Context& c, const at::Tensor& z) final;
  std::string unfused_because() const override { return ""; }
};

}  // namespace mh::attention
