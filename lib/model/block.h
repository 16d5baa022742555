// One layer of a transformer: self-attention, in a decoder behind an encoder attention to that, and a feed-forward
// part, each with its layer norm, dropout and sum.
#pragma once

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "attention/layer.h"
#include "model/model_config.h"

namespace mh::model {

// A layer norm's two parameters.
class LayerNorm {
 public:
  LayerNorm(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options);
  at::Tensor operator()(const at::Tensor& x) const {
    return nn::layer_norm(x, weight_.value(), bias_.value(), epsilon_);
  }
  at::Tensor of_sum(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop) const {
    return nn::norm_of_sum(x, y, drop, weight_.value(), bias_.value(), epsilon_);
  }
  nn::SumAndNorm with_sum(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop) const {
    return nn::add_and_norm(x, y, drop, weight_.value(), bias_.value(), epsilon_);
  }

 private:
  nn::Parameter& weight_;
  nn::Parameter& bias_;
  double epsilon_;
};

// y = W_down activation(W_up x + b) + b, with dropout after the activation.
class FeedForward {
 public:
  // `stream`: what random streams of its dropout begin with.
  FeedForward(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options, std::string stream);
  at::Tensor operator()(const at::Tensor& x, const nn::ForwardContext& step, int64_t layer) const;

 private:
  nn::Activation activation_;
  double dropout_;
  std::string stream_;
  nn::Parameter *up_, *up_bias_, *down_, *down_bias_;
};

// What the layers of a decoder see of an encoder.
struct Encoded {
  // (B, S, d), its last. In decoding there may be fewer, each for as many rows side by side, where the layers allow it
  // (attention::AttentionLayer::by_query).
  at::Tensor states;
  attention::Mask mask;  // lengths of keys, the source's, and of queries, the target's
};

class Block {
 public:
  // `name` is "decoder.layers.3". `crosses`: it attends to an encoder as well.
  Block(nn::ParameterList& parameters, const ModelConfig& config, attention::Kind kind, int64_t layer,
        const std::string& name, bool crosses = false);

  struct Caches {
    attention::Cache* self = nullptr;
    attention::Cache* cross = nullptr;
  };
  // x (B, T, d) -> (B, T, d). `memory` (B, m, d), or undefined: earlier inputs of this layer, attended to in front of
  // x. `encoded` where it crosses; of its rows copies are made as of those of x (attention::Variants).
  at::Tensor forward(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& step,
                     const Caches& caches, attention::Observer* observer, const at::Tensor& memory = {},
                     Encoded* encoded = nullptr);
  // Rows that stand beside what forward() is given; see AttentionLayer::copied.
  at::Tensor repeat_for_variants(const at::Tensor& x) const;
  attention::AttentionLayer& self() { return self_.layer; }
  const attention::AttentionLayer& self() const { return self_.layer; }
  // Its own, in the order in which they act.
  std::vector<attention::AttentionLayer*> attention_layers();

 private:
  struct Part {
    attention::AttentionLayer layer;
    LayerNorm norm;
    std::string stream;  // of the dropout of its output
  };
  Part make_part(nn::ParameterList& parameters, const ModelConfig& config, attention::Kind kind,
                 const std::string& name, std::string stream) const;
  // What flows between parts, (B, T, d): x, and what the next part reads of it, its norm where that stands before.
  struct Flow {
    at::Tensor x, read;
  };
  // The same behind x + dropout(y), y of a part with the norm `own`, before a part with the norm `next`, if any.
  Flow join(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop, const LayerNorm& own,
            const LayerNorm* next) const;
  // The arguments of a part's attention beside the flow.
  struct Attention {
    const attention::Mask& mask;
    const nn::ForwardContext& step;
    attention::Cache* cache = nullptr;
    attention::Observer* observer = nullptr;
    at::Tensor keys = {};    // (B, Tk, d), the encoder's states; undefined: self-attention
    at::Tensor memory = {};  // (B, m, d), earlier inputs in front of the keys of self-attention, or undefined
  };
  // Returns the flow after a part, before one with the norm `next`.
  Flow attend(Part& part, const Flow& in, const LayerNorm& next, const Attention& attention) const;

  ModelOptions options_;
  int64_t layer_;
  std::string stream_;  // what names of random streams begin with
  Part self_;
  std::optional<Part> cross_;
  FeedForward ffn_;
  LayerNorm ffn_norm_;
};

// Those of several stacks, from the first one's first block on.
std::vector<attention::AttentionLayer*> attention_layers_of(std::initializer_list<std::deque<Block>*> stacks);

}  // namespace mh::model
