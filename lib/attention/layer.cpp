// The forward pass of an attention layer: projections, dispatch, interceptors, combiners, output projection.
#include "attention/layer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "attention/fused/split_projection.h"
#include "attention/gated_combiner.h"
#include "nn/aten.h"
#include "nn/ops.h"

namespace mh::attention {

namespace {

// Returns a view (B, h, T, size) of x (B, T, h * size).
at::Tensor split_heads(const at::Tensor& x, int64_t num_heads) {
  return x.view({x.size(0), x.size(1), num_heads, x.size(2) / num_heads}).transpose(1, 2);
}

}  // namespace

AttentionLayer::Projections AttentionLayer::project(const at::Tensor& query_input, const at::Tensor& key_input,
                                                    Cache* cache) {
  const int64_t heads = layer_spec_.heads, k_heads = layer_spec_.k_heads(), v_heads = layer_spec_.v_heads();
  const int64_t query_width = heads * layer_spec_.key_size, value_width = v_heads * layer_spec_.value_size;
  // Without key projection k has no elements.
  const int64_t key_width = key_weight_ != nullptr ? k_heads * layer_spec_.key_size : 0;
  Projections p;
  if (layer_spec_.kind == AttentionKind::decoder_cross || !query_input.is_same(key_input)) {
    p.q = split_heads(nn::linear(query_input, {query_weight_}, {query_bias_}), heads);
    const bool is_cache_filled =
        cache != nullptr && layer_spec_.kind == AttentionKind::decoder_cross && cache->length() > 0;
    if (is_cache_filled) {
      std::tie(p.k, p.v) = cache->keys_and_values();
      p.is_cached = true;
      return p;
    }
    at::Tensor kv = nn::linear(key_input, {key_weight_, value_weight_}, {key_bias_, value_bias_});
    p.k = split_heads(kv.narrow(-1, 0, key_width), k_heads);
    p.v = split_heads(kv.narrow(-1, key_width, value_width), v_heads);
  } else {
    // One matrix product computes queries, keys and values. Concatenating the weights for this product costs little,
    // since weights are small compared with activations.
    at::Tensor qkv =
        nn::linear(query_input, {query_weight_, key_weight_, value_weight_}, {query_bias_, key_bias_, value_bias_});
    if (key_weight_ != nullptr) {
      const auto [q, k, v] = split_projection(qkv, {.q_heads = heads,
                                                    .k_heads = k_heads,
                                                    .v_heads = v_heads,
                                                    .key_size = layer_spec_.key_size,
                                                    .value_size = layer_spec_.value_size});
      p = {q, k, v, false};
    } else {
      p.q = split_heads(qkv.narrow(-1, 0, query_width), heads);
      p.v = split_heads(qkv.narrow(-1, query_width, value_width), v_heads);
      p.k = p.v.narrow(-1, 0, 0);
    }
  }
  return p;
}

std::string AttentionLayer::probabilities_stream() const {
  return std::string(name_of(layer_spec_.kind)) + ".probabilities";
}

LayerView AttentionLayer::view() const {
  const bool has_heads = output_weight_ != nullptr;
  return {layer_spec_,
          options_,
          stages_,
          has_heads ? output_weight_->value().scalar_type() : at::kFloat,
          has_heads && output_weight_->value().is_cuda(),
          interceptor_.get()};
}

at::Tensor AttentionLayer::intercept(HeadSide side, Context& c, const at::Tensor& x) const {
  at::Tensor y = c.observer != nullptr ? c.observer->intercept_heads(side, layer_spec_, x) : x;
  if (interceptor_ == nullptr || !interceptor_->acts_on(side)) return y;
  if (const Variants* variants = variants_of_rows(); variants != nullptr && !std::exchange(c.are_rows_repeated, true)) {
    if (side == HeadSide::score) variants->repeat_inputs(c);
    if (side != HeadSide::output) variants->repeat_head_weights(c);
    y = variants->repeat(y);
  }
  return interceptor_->intercept_heads(side, layer_spec_, y);
}

void AttentionLayer::set_head_weights(Context& c) const {
  c.head_weights.resize(stages_.combiners.size());
  at::Tensor product;
  size_t entry = 0;
  for (size_t i = 0; i < stages_.combiners.size(); ++i) {
    const at::Tensor weights = stages_.combiners[i]->head_weights(c);
    c.head_weights[entry] = multiply_head_weights(c.head_weights[entry], weights);
    if (!stages_.combiners[i]->only_scales_heads()) entry = i + 1;
    if (c.observer != nullptr) product = multiply_head_weights(product, weights);
  }
  if (c.observer == nullptr || (!product.defined() && !has_head_gates())) return;
  if (!product.defined()) product = at::ones({layer_spec_.value_heads}, c.query_input.options().dtype(at::kFloat));
  c.observer->notify_subscribers(layer_spec_, HeadWeightObservation{product});
}

at::Tensor AttentionLayer::forward_without_heads(const at::Tensor& query_input, const at::Tensor& key_input,
                                                 Cache* cache) const {
  if (cache != nullptr && layer_spec_.kind != AttentionKind::decoder_cross) cache->skip(query_input.size(1));
  else if (cache != nullptr && cache->length() == 0) cache->skip(key_input.size(1));
  const at::Tensor zero_output = repeat_for_variants(at::zeros(query_input.sizes(), query_input.options()));
  return output_bias_ != nullptr ? zero_output + output_bias_->value() : zero_output;
}

at::Tensor AttentionLayer::forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                                   const nn::ForwardContext& forward_context, Cache* cache, Observer* observer) {
  if (layer_spec_.heads == 0) return forward_without_heads(query_input, key_input, cache);
  const Projections p = project(query_input, key_input, cache);
  Context c{layer_spec_, forward_context, mask, query_input, key_input, p.q, p.k, p.v};
  if (cache != nullptr) c.stage_states = &cache->stage_states();
  c.observer = observer;
  if (options_.window > 0)
    c.mask.window = c.mask.window > 0 ? std::min(c.mask.window, options_.window) : options_.window;
  c.kv_head_of = layer_spec_.kv_head_of;
  // Cached keys of cross-attention are transformed already: for transforms, the pass has no new keys.
  if (p.is_cached) c.k = p.k.narrow(2, 0, 0);
  for (const auto& transform : stages_.transforms) transform->transform(c);
  if (p.is_cached) c.k = p.k;
  c.num_keys = c.v.size(2) + (cache != nullptr && !p.is_cached ? cache->length() : 0);
  stages_.pairing->pair(c);
  set_head_weights(c);
  const KernelChoice choice = dispatcher_.choose_kernel(view(), c);
  if (choice.kernel == Kernel::composed) dispatcher_.report_fallback(view(), c, choice);
  if (choice.is_in_place()) {
    c.head_outputs = attend_in_place(c, choice, *cache);
  } else {
    if (cache != nullptr && !p.is_cached) std::tie(c.k, c.v) = cache->append(c.k, c.v);
    c.head_outputs = choice.kernel == Kernel::composed ? attend_composed(c) : attend_fused(c, choice);
  }
  const bool has_interception = observer != nullptr || interceptor_ != nullptr;
  if (has_interception) c.head_outputs = intercept(HeadSide::value, c, c.head_outputs);
  at::Tensor combined_heads = c.head_outputs;
  for (size_t i = 0; i < stages_.combiners.size(); ++i) {
    if (const at::Tensor& weights = c.head_weights[i]; weights.defined())
      combined_heads = scale_heads(combined_heads, weights);
    combined_heads = stages_.combiners[i]->combine(c, combined_heads);
  }
  at::Tensor projection_input = join_heads(combined_heads);
  if (has_interception)
    projection_input =
        join_heads(intercept(HeadSide::output, c, split_heads(projection_input, layer_spec_.output_heads)));
  return nn::linear(projection_input, {output_weight_}, {output_bias_});
}

}  // namespace mh::attention
