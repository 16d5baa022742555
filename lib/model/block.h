// One layer of a transformer: self-attention and a feed-forward part, each with its layer norm, dropout and sum.
#pragma once

#include <string>

#include "attention/layer.h"
#include "model/model_config.h"

namespace mh::model {

// A layer norm's two parameters.
class LayerNorm {
 public:
  LayerNorm(ParameterList& parameters, const std::string& name, const ModelOptions& options);
  at::Tensor operator()(const at::Tensor& x) const { return layer_norm(x, weight_.value(), bias_.value(), epsilon_); }

 private:
  Parameter& weight_;
  Parameter& bias_;
  double epsilon_;
};

// y = W_down activation(W_up x + b) + b, with dropout after the activation.
class FeedForward {
 public:
  FeedForward(ParameterList& parameters, const std::string& name, const ModelOptions& options);
  at::Tensor operator()(const at::Tensor& x, const attention::Step& step, int64_t layer) const;

 private:
  Activation activation_;
  double dropout_;
  Parameter *up_, *up_bias_, *down_, *down_bias_;
};

class Block {
 public:
  // `name` is "decoder.layers.3".
  Block(ParameterList& parameters, const ModelConfig& config, attention::Kind kind, int64_t layer,
        const std::string& name);
  // x (B, T, d) -> (B, T, d). `memory` (B, m, d), or undefined: earlier inputs of this layer, attended to in front of
  // x.
  at::Tensor forward(const at::Tensor& x, const attention::Mask& mask, const attention::Step& step,
                     attention::Cache* cache, attention::Observer* observer, const at::Tensor& memory = {});
  attention::AttentionLayer& self() { return self_; }
  const attention::AttentionLayer& self() const { return self_; }

 private:
  ModelOptions options_;
  int64_t layer_;
  attention::AttentionLayer self_;
  LayerNorm self_norm_;
  FeedForward ffn_;
  LayerNorm ffn_norm_;
};

}  // namespace mh::model
