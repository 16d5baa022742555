#include "attention/head_scale.h"

namespace mh::attention {

at::Tensor combine_gated(const Context& c, const at::Tensor& z, const at::Tensor& gates) {
  if (c.observer != nullptr) c.observer->gates(c.shape, gates);
  const at::Tensor by_position = z.transpose(1, 2);  // (B, T, h, dv)
  return (by_position * gates.to(z.scalar_type()).unsqueeze(-1)).reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
}

}  // namespace mh::attention
