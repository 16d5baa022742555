// Builds the model with larger heads and copies the parameters into it, padded with zeros.
#include "analysis/pad_heads.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

// Returns the number of blocks, one for each head, of an axis of a parameter; 1 if heads do not divide the axis.
int64_t num_blocks_of(const nn::Parameter& parameter, int64_t axis) {
  for (const nn::HeadAxis& head_axis : parameter.traits().head_axes)
    if (head_axis.axis == axis) return head_axis.block_count();
  return 1;
}

}  // namespace

at::Tensor pad_blocks(const at::Tensor& x, int64_t axis, int64_t num_blocks, int64_t size) {
  std::vector<int64_t> padded_sizes = x.sizes().vec();
  const int64_t block_size = padded_sizes[static_cast<size_t>(axis)] / num_blocks;
  padded_sizes[static_cast<size_t>(axis)] = size;
  const at::Tensor padded = at::zeros(padded_sizes, x.options());
  padded.unflatten(axis, {num_blocks, size / num_blocks})
      .narrow(axis + 1, 0, block_size)
      .copy_(x.unflatten(axis, {num_blocks, block_size}));
  return padded;
}

PaddedModel pad_heads(const model::ModelConfig& config, model::LanguageModel& model, int64_t head_size,
                      const std::string& where) {
  const c10::NoGradGuard no_gradient;
  PaddedModel padded{config, nullptr};
  int64_t largest_size = 0;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    if (s.heads == 0) continue;
    largest_size = std::max({largest_size, s.key_size, s.value_size});
    padded.num_layers += s.key_size < head_size || s.value_size < head_size;
  }
  if (largest_size == 0)
    refuse_usage(where, "a model with attention heads", "no layer with heads", "use the model unchanged");
  if (head_size < largest_size)
    refuse_usage(where, str("a head size of at least ", largest_size, ", the largest size of a head of the model"),
                 str(head_size), "raise the head size");
  if (padded.num_layers == 0)
    refuse_usage(where, str("a head size above ", largest_size, ", the size of every head of the model"),
                 str(head_size), "raise the head size, or use the model unchanged");
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    padded.config.attention.set_layer(s.kind, s.layer, layer->options_after_padding(head_size));
  }
  padded.config.attention.hoist_common_options();
  padded.model = model::build_language_model(padded.config, model.vocabulary_sizes(), model.parameters().device());
  for (nn::Parameter& p : padded.model->parameters().all()) {
    at::Tensor value = model.parameters().find(p.name())->master();
    for (int64_t axis = 0; axis < value.dim(); ++axis)
      if (const int64_t size = p.master().size(axis); value.size(axis) != size)
        value = pad_blocks(value, axis, num_blocks_of(p, axis), size);
    p.master().copy_(value);
  }
  padded.model->parameters().refresh_bf16_copies();
  return padded;
}

}  // namespace mh::analysis
