// Concatenates head outputs, multiplies them by weights, and shows gates to observers.
#include "attention/gated_combiner.h"

namespace mh::attention {

at::Tensor join_heads(const at::Tensor& z) {
  return z.transpose(1, 2).reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
}

at::Tensor scale_heads(const at::Tensor& z, const at::Tensor& w) {
  const at::Tensor s = w.to(z.scalar_type());
  if (s.dim() == 1) return z * s.view({-1, 1, 1});
  return z * (s.dim() == 2 ? s.unsqueeze(-1) : s.transpose(1, 2)).unsqueeze(-1);
}

at::Tensor multiply_head_weights(const at::Tensor& v, const at::Tensor& w) {
  if (!v.defined() || !w.defined()) return v.defined() ? v : w;
  // Weights (B, hv) become (B, 1, hv) beside weights (B, T, hv).
  if (v.dim() == 2 && w.dim() == 3) return v.unsqueeze(1) * w;
  if (v.dim() == 3 && w.dim() == 2) return v * w.unsqueeze(1);
  return v * w;
}

at::Tensor show_gates(const Context& c, const at::Tensor& gates, bool is_mixture) {
  if (c.observer == nullptr) return gates;
  GateObservation observation{gates, is_mixture};
  c.observer->notify_subscribers(c.layer_spec, observation);
  return observation.gates;
}

}  // namespace mh::attention
