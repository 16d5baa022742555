// Converts attention masks to tensors.
#include "attention/mask.h"

#include <limits>

#include "nn/aten.h"
#include "nn/device.h"

namespace mh::attention {

at::Tensor lengths_if_padded(const at::Tensor& lengths, int64_t num_positions, at::Device device) {
  if (!lengths.defined() || lengths.ge(num_positions).all().item<bool>()) return {};
  return nn::to_device(lengths, device);
}

at::Tensor boolean_mask(const Mask& mask, int64_t num_queries, int64_t num_keys, at::Device device) {
  at::Tensor result;
  auto intersect = [&](const at::Tensor& m) { result = result.defined() ? result & m : m; };
  auto options = at::TensorOptions().dtype(at::kLong).device(device);
  if (mask.causal || mask.window > 0) {
    at::Tensor t = at::arange(num_queries, options).view({1, 1, num_queries, 1}) + mask.offset;
    at::Tensor s = at::arange(num_keys, options).view({1, 1, 1, num_keys});
    if (mask.causal && mask.offset < num_keys - 1) intersect(s <= t);
    if (mask.window > 0) intersect(s > t - mask.window);
    if (mask.window > 0 && !mask.causal) intersect(s < t + mask.window);
  }
  if (mask.key_lengths.defined())
    intersect(at::arange(num_keys, options).view({1, 1, 1, num_keys}) <
              nn::to_device(mask.key_lengths, device).view({-1, 1, 1, 1}));
  if (mask.additive.defined()) {
    at::Tensor finite_entries = mask.additive > -std::numeric_limits<double>::infinity();
    while (finite_entries.dim() < 4) finite_entries = finite_entries.unsqueeze(0);
    intersect(finite_entries.expand({finite_entries.size(0), finite_entries.size(1), num_queries, num_keys}));
  }
  return result;
}

}  // namespace mh::attention
