// Concatenates head outputs, with or without a weight for each head.
#include "attention/gated_combiner.h"

namespace mh::attention {

at::Tensor join_heads(const at::Tensor& z) {
  return z.transpose(1, 2).reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
}

at::Tensor join_gated_heads(const at::Tensor& z, const at::Tensor& w) {
  const at::Tensor s = w.to(z.scalar_type());
  if (s.dim() == 1) return join_heads(z * s.view({-1, 1, 1}));
  return join_heads(z * (s.dim() == 2 ? s.unsqueeze(-1) : s.transpose(1, 2)).unsqueeze(-1));
}

at::Tensor show_gates(const Context& c, const at::Tensor& gates) {
  if (c.observer == nullptr) return gates;
  GateObservation observation{gates};
  c.observer->notify_subscribers(c.layer_spec, observation);
  c.observer->notify_subscribers(c.layer_spec, HeadWeightObservation{observation.gates});
  return observation.gates;
}

at::Tensor GatedCombiner::combine(const Context& c, const at::Tensor& z) {
  return c.head_weights.defined() && !c.are_head_weights_applied ? join_gated_heads(z, c.head_weights) : join_heads(z);
}

}  // namespace mh::attention
