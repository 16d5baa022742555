// The fused path of a layer: converts the results of its stages to kernel arguments, for a forward pass and for a step
// of incremental decoding.
#include <cmath>
#include <optional>
#include <utility>

#include "attention/fused/attention_spec.h"
#include "attention/fused/cached_attention.h"
#include "attention/fused/fused_cpu.h"
#include "attention/fused/head_mixing_cpu.h"
#include "attention/key_distances.h"
#include "attention/layer.h"
#include "nn/aten.h"
#include "nn/ops.h"

namespace mh::attention {

AttentionSpec AttentionLayer::inference_spec(const Context& c, const MaskForm& mask_form) const {
  AttentionSpec spec;
  spec.causal = mask_form.queries_are_last && (!mask_form.causal_hides_no_key || c.mask.window > 0);
  spec.window = c.mask.window;
  spec.kv_head_of = c.kv_head_of, spec.scale = layer_spec_.scale();
  spec.soft_cap = options_.soft_cap, spec.sinks = sinks();
  if (stages_.position_bias->has_bias()) {
    KeyDistances distances = key_distances(c.mask, c.q.size(2), c.num_keys, c.q.device());
    spec.position_bias = {stages_.position_bias->bias(c, distances.distances).contiguous(),
                          std::move(distances.key_ranges)};
  }
  return spec;
}

at::Tensor AttentionLayer::attend_in_place(const Context& c, const KernelChoice& choice, Cache& cache) const {
  AttentionSpec spec = inference_spec(c, choice.mask);
  if (choice.kernel == Kernel::fused_in_place) return cached_attention(c.q, c.k, c.v, spec, cache);
  spec.normaliser = stages_.normaliser->kernel_normaliser();
  return head_mixing_decode_cpu(c.q, c.k, c.v, choice.matrix, spec, cache);
}

at::Tensor AttentionLayer::attend_fused(Context& c, const KernelChoice& choice) {
  const int64_t num_queries = c.q.size(2), num_keys = c.k.size(2);
  if (choice.kernel == Kernel::sdpa) return attend_with_sdpa(c, choice.mask.is_square);
  AttentionSpec spec = inference_spec(c, choice.mask);
  spec.key_lengths = c.mask.key_lengths;
  spec.normaliser = stages_.normaliser->kernel_normaliser();
  stages_.score->set_relative_positions(c, spec.relative_positions);
  // The kernel applies the first combiners' head weights (hv) or (B, hv), but not weights (B, Tq, hv).
  if (at::Tensor& weights = c.head_weights.front(); weights.defined() && weights.dim() < 3)
    spec.head_scales = std::exchange(weights, at::Tensor());
  const bool mixes_heads = choice.matrix.defined();
  spec.dropout_before_mixing = mixes_heads && stages_.mixer->dropout_before_mixing();
  if (has_dropout(c.forward_context.training)) {
    const int64_t num_heads = mixes_heads && !spec.dropout_before_mixing ? layer_spec_.value_heads : layer_spec_.heads;
    spec.dropout =
        nn::dropout_range_of({c.q.size(0), num_heads, num_queries, num_keys}, options_.dropout, c.forward_context,
                             probabilities_stream(), static_cast<uint32_t>(layer_spec_.layer));
  }
  switch (choice.kernel) {
    case Kernel::head_mixing_gpu:
      return head_mixing_gpu(choice.gpu, c.q, c.k, c.v, choice.matrix, spec);
    case Kernel::head_mixing_cpu:
      return head_mixing_cpu(c.q, c.k, c.v, choice.matrix, spec);
    case Kernel::fused_gpu:
      return fused_gpu(choice.gpu, c.q, c.k, c.v, spec);
    default:
      return fused_cpu(c.q, c.k, c.v, spec);
  }
}

at::Tensor AttentionLayer::attend_with_sdpa(Context& c, bool is_square) const {
  gather_kv_heads(c);
  std::optional<at::Tensor> mask;
  if (!is_square) {
    const int64_t num_queries = c.q.size(2), num_keys = c.k.size(2);
    at::Tensor visible_mask = boolean_mask(c.mask, num_queries, num_keys, c.q.device());
    at::Tensor bias = c.mask.additive;
    if (visible_mask.defined()) {
      at::Tensor hidden_bias = at::zeros(visible_mask.sizes(), c.q.options()).masked_fill(~visible_mask, -INFINITY);
      bias = bias.defined() ? bias + hidden_bias : hidden_bias;
    }
    if (bias.defined())
      mask = bias.to(c.q.scalar_type()).expand({c.q.size(0), layer_spec_.heads, num_queries, num_keys});
  }
  return at::scaled_dot_product_attention(c.q, c.k, c.v, mask, 0.0, is_square, layer_spec_.scale());
}

}  // namespace mh::attention
