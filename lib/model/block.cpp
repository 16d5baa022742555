#include "model/block.h"

#include <cmath>

#include "base/error.h"

namespace mh::model {

namespace {

// Initial values of the schemes: fairseq's (Xavier, gain 1/√2 for queries, keys and values, their biases as a plain
// linear layer's), BERT's (truncated normal, biases 0) and Transformer-XL's (normal, biases 0, layer norms around 1).
attention::AttentionLayer::Inits attention_inits(const ModelOptions& options) {
  if (options.init == Scheme::bert)
    return {Init::truncated_normal(0.02), Init::constant(0), Init::truncated_normal(0.02)};
  if (options.init == Scheme::transformer_xl) return {Init::normal(0.02), Init::constant(0), Init::normal(0.02)};
  return {Init::xavier_uniform(1 / std::sqrt(2.0)), Init::uniform(1 / std::sqrt(static_cast<double>(options.width))),
          Init::xavier_uniform()};
}

}  // namespace

LayerNorm::LayerNorm(ParameterList& parameters, const std::string& name, const ModelOptions& options)
    : weight_(parameters.add(
          name + ".weight", {options.width},
          {options.init == Scheme::transformer_xl ? Init::normal(1, 0.02) : Init::constant(1), false, false})),
      bias_(parameters.add(name + ".bias", {options.width}, {Init::constant(0), false, false})),
      epsilon_(options.norm_epsilon) {}

FeedForward::FeedForward(ParameterList& parameters, const std::string& name, const ModelOptions& options)
    : activation_(options.activation), dropout_(options.dropout_activation) {
  Init weight = options.init == Scheme::bert             ? Init::truncated_normal(0.02)
                : options.init == Scheme::transformer_xl ? Init::normal(0.02)
                                                         : Init::xavier_uniform();
  auto add = [&](const char* part, std::vector<int64_t> shape, bool is_weight) {
    return &parameters.add(name + part, std::move(shape),
                           {is_weight ? weight : Init::constant(0), is_weight, is_weight});
  };
  up_ = add(".up.weight", {options.ffn, options.width}, true);
  up_bias_ = add(".up.bias", {options.ffn}, false);
  down_ = add(".down.weight", {options.width, options.ffn}, true);
  down_bias_ = add(".down.bias", {options.width}, false);
}

at::Tensor FeedForward::operator()(const at::Tensor& x, const attention::Step& step, int64_t layer) const {
  at::Tensor inner = activation(linear(x, up_->value(), up_bias_->value()), activation_);
  inner = dropout(inner, dropout_, step, "ffn.activation", static_cast<uint32_t>(layer));
  return linear(inner, down_->value(), down_bias_->value());
}

Block::Block(ParameterList& parameters, const ModelConfig& config, attention::Kind kind, int64_t layer,
             const std::string& name)
    : options_(config.model),
      layer_(layer),
      self_(parameters, config.attention.layer(kind, layer),
            attention::make_shape(config.attention.layer(kind, layer), kind, layer, config.model.width, name + ".self"),
            attention_inits(config.model)),
      self_norm_(parameters, name + ".self.norm", config.model),
      ffn_(parameters, name + ".ffn", config.model),
      ffn_norm_(parameters, name + ".ffn.norm", config.model) {}

at::Tensor Block::forward(const at::Tensor& x, const attention::Mask& mask, const attention::Step& step,
                          attention::Cache* cache, attention::Observer* observer, const at::Tensor& memory) {
  const bool pre = options_.norm == Norm::pre;
  const auto site = static_cast<uint32_t>(layer_);
  at::Tensor keys = memory.defined() ? at::cat({memory, x}, 1) : x;
  if (pre) keys = self_norm_(keys);
  const at::Tensor in = !memory.defined() ? keys : pre ? keys.narrow(1, memory.size(1), x.size(1)) : x;
  at::Tensor y = self_.forward(in, keys, mask, step, cache, observer);
  // Ablation may ask a layer for several results of a row (attention::HeadScales).
  at::Tensor h = (y.size(0) > x.size(0) ? self_.copied(x) : x) +
                 dropout(y, options_.dropout_attention, step, "attention.output", site);
  if (!pre) h = self_norm_(h);
  at::Tensor z = ffn_(pre ? ffn_norm_(h) : h, step, layer_);
  at::Tensor out = h + dropout(z, options_.dropout_ffn, step, "ffn.output", site);
  return pre ? out : ffn_norm_(out);
}

}  // namespace mh::model
