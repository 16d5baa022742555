// The composed path: tensor operations for any device and any stages, which store the probabilities of all queries.

#include <c10/core/GradMode.h>

#include <utility>

#include "attention/buffer_reuse.h"
#include "attention/causal_product.h"
#include "attention/key_distances.h"
#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/aten.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::attention {

// Replaces k and v by the key/value heads that the query heads read, unless each query head reads the head of the same
// index.
void AttentionLayer::gather_kv_heads(Context& c) {
  if (c.kv_head_of.empty()) return;
  const at::Tensor heads = nn::to_device(at::tensor(c.kv_head_of), c.v.device());
  for (at::Tensor* t : {&c.k, &c.v}) *t = t->index_select(1, heads);
}

at::Tensor AttentionLayer::sinks() const {
  if (options_.sink == Sink::none) return {};
  return sinks_ != nullptr ? sinks_->value()
                           : at::zeros({layer_spec_.heads}, output_weight_->value().options().dtype(at::kFloat));
}

void AttentionLayer::apply_soft_cap_and_position_bias(Context& c) const {
  const bool has_bias = stages_.position_bias->has_bias();
  if (options_.soft_cap == 0 && !has_bias) return;
  at::Tensor logits = std::exchange(c.logits, {});
  if (at::isReducedFloatingType(logits.scalar_type())) logits = logits.to(at::kFloat);
  // In evaluation, saves the memory of a second tensor as large as the logits.
  const bool in_place = !c10::GradMode::is_enabled() && can_reuse_storage(logits);
  if (const double cap = options_.soft_cap; cap > 0)
    logits = in_place ? logits.div_(cap).tanh_().mul_(cap) : (logits / cap).tanh() * cap;
  if (has_bias) {
    const KeyDistances distances = key_distances(c.mask, c.q.size(2), c.num_keys, c.q.device());
    const at::Tensor bias =
        gather_by_distance(stages_.position_bias->bias(c, distances.distances), distances.key_ranges, c.q.size(2));
    logits = in_place ? logits.add_(bias) : logits + bias;
  }
  c.logits = std::move(logits);
}

at::Tensor AttentionLayer::attend_composed(Context& c) {
  gather_kv_heads(c);
  auto expand_to_rows = [&](const at::Tensor& x) {  // (1, h, Tq, Tk) or (B, h, Tq, Tk) -> (B, h, Tq, Tk)
    const int64_t batch_size = c.v.size(0);
    return x.size(0) == batch_size ? x : x.expand({batch_size, x.size(1), x.size(2), x.size(3)});
  };
  if (c.observer != nullptr && c.observer->wants_scores()) {
    const bool is_causal = std::exchange(c.mask.causal, false);  // so that the score computes hidden logits, too
    stages_.score->score(c);
    c.mask.causal = is_causal;
    apply_soft_cap_and_position_bias(c);
    c.observer->observe_scores(layer_spec_, expand_to_rows(c.logits));
  } else {
    stages_.score->score(c);
    apply_soft_cap_and_position_bias(c);
  }
  // Logits (1, h, Tq, Tk) that all batch rows share are expanded only if mixing or key lengths make the rows differ.
  if (stages_.mixer->mixer_input() != MixerInput::nothing || c.mask.key_lengths.defined())
    c.logits = expand_to_rows(c.logits);
  if (stages_.mixer->mixer_input() == MixerInput::logits) c.logits = intercept(HeadSide::score, c, c.logits);
  c.logits = stages_.mixer->mix_logits(c, c.logits);
  // The normaliser computes in fp32, whatever the type of the matrix products.
  at::Tensor logits = std::exchange(c.logits, {});  // freed below, since logits are as large as the probabilities
  if (at::isReducedFloatingType(logits.scalar_type())) logits = logits.to(at::kFloat);
  if (const at::Tensor& a = c.mask.additive; a.defined()) {
    if (a.dim() > 2 && a.size(-3) > 1 && a.size(-3) != logits.size(1))
      refuse_usage(
          layer_spec_.name, "an additive mask that all heads share, since the mixer changes the number of heads",
          str("a separate mask for each of ", count_of(a.size(-3), "head")), "pass a mask of shape (B, 1, Tq, Tk)");
    logits = logits + a;
  }
  at::Tensor p =
      stages_.normaliser->normalise(logits, boolean_mask(c.mask, c.q.size(2), c.k.size(2), c.q.device()), sinks());
  logits.reset();
  auto apply_dropout = [&](const at::Tensor& x) {
    return nn::dropout(x, options_.dropout, c.forward_context, probabilities_stream(),
                       static_cast<uint32_t>(layer_spec_.layer));
  };
  const bool applies_dropout = has_dropout(c.forward_context.training);
  if (applies_dropout || c.observer != nullptr) p = expand_to_rows(p);
  if (stages_.mixer->mixer_input() == MixerInput::probabilities) p = intercept(HeadSide::score, c, p);
  if (stages_.mixer->dropout_before_mixing()) p = apply_dropout(p);
  if ((stages_.mixer->dropout_before_mixing() || !applies_dropout) && c.observer == nullptr)
    if (at::Tensor z = stages_.mixer->mix_values(c, p); z.defined()) return z;
  c.probabilities = stages_.mixer->mix(c, p);
  if (c.observer != nullptr) c.observer->observe_probabilities(layer_spec_, c.probabilities);
  p = stages_.mixer->dropout_before_mixing() ? c.probabilities : apply_dropout(c.probabilities);
  return product_with_values(p.to(c.v.scalar_type()), c.v, c.mask.causal_offset());
}

}  // namespace mh::attention
