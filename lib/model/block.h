// One layer of a transformer: self-attention, cross-attention in a decoder with an encoder, and a feed-forward
// sublayer, each with layer norm, dropout and residual connection.
#pragma once

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "attention/layer.h"
#include "model/model_config.h"

namespace mh::model {

// A layer norm over the last axis (d), with its parameters `weight` and `bias`.
class LayerNorm {
 public:
  LayerNorm(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options);
  at::Tensor operator()(const at::Tensor& x) const {
    return nn::layer_norm(x, weight_.value(), bias_.value(), epsilon_);
  }
  // Returns norm(x + dropout(y)).
  at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop) const {
    return nn::norm_of_sum(x, y, drop, weight_.value(), bias_.value(), epsilon_);
  }
  // Returns x + dropout(y) and its norm.
  nn::SumAndNorm with_sum(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop) const {
    return nn::add_and_norm(x, y, drop, weight_.value(), bias_.value(), epsilon_);
  }

 private:
  nn::Parameter& weight_;
  nn::Parameter& bias_;
  double epsilon_;
};

// The feed-forward sublayer, y = W_down activation(W_up x + b_up) + b_down, with dropout after the activation.
class FeedForward {
 public:
  // `stream`: prefix of the names of its random streams for dropout.
  FeedForward(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options, std::string stream);
  at::Tensor operator()(const at::Tensor& x, const nn::ForwardContext& step, int64_t layer) const;

 private:
  nn::Activation activation_;
  double dropout_;
  std::string stream_;
  nn::Parameter *up_, *up_bias_, *down_, *down_bias_;
};

// The output of an encoder, as the cross-attention of a decoder reads it.
struct Encoded {
  // Last hidden states (B, S, d). In decoding (B/n, S, d) if n consecutive rows of the decoder share each source and
  // the layers allow it (attention::AttentionLayer::is_per_query).
  at::Tensor states;
  attention::Mask mask;  // key lengths: of the source; query lengths: of the target
};

class Block {
 public:
  // `name`: prefix of the parameters, such as "decoder.layers.3". `is_cross`: with cross-attention to an encoder.
  Block(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind, int64_t layer,
        const std::string& name, bool is_cross = false);

  struct Caches {
    attention::Cache* self = nullptr;
    attention::Cache* cross = nullptr;
  };
  // Returns (B, T, d) for x (B, T, d). `memory` (B, m, d), or undefined: inputs of this layer from earlier segments;
  // their keys and values precede those of x. `encoded`: required with cross-attention; if an interceptor repeats the
  // rows of x for its variants (attention::Variants), the rows of `encoded` are repeated in place.
  at::Tensor forward(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& step,
                     const Caches& caches, attention::Observer* observer, const at::Tensor& memory = {},
                     Encoded* encoded = nullptr);
  // Repeats x (B, …), a tensor with the rows of forward(), for the variants of all attention layers of the block.
  at::Tensor repeat_for_variants(const at::Tensor& x) const;
  attention::AttentionLayer& self() { return self_.layer; }
  const attention::AttentionLayer& self() const { return self_.layer; }
  // Returns self-attention, then cross-attention if there is one.
  std::vector<attention::AttentionLayer*> attention_layers();

 private:
  // An attention sublayer.
  struct Sublayer {
    attention::AttentionLayer layer;
    LayerNorm norm;
    std::string stream;  // random stream of the dropout of the output
  };
  Sublayer make_sublayer(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind,
                         const std::string& name, std::string stream) const;
  // The tensors between two sublayers, (B, T, d): the residual stream x, and the input of the next sublayer, which is
  // norm(x) with pre-norm and x with post-norm.
  struct Flow {
    at::Tensor x, read;
  };
  // Adds the output y of a sublayer to the residual stream, x + dropout(y), and returns the tensors for the next
  // sublayer. `own`: norm of the sublayer that computed y; `next`: norm of the next sublayer, or null after the last.
  Flow join(const at::Tensor& x, const at::Tensor& y, const nn::Dropping& drop, const LayerNorm& own,
            const LayerNorm* next) const;
  // The arguments of attend() other than the tensors between sublayers.
  struct Attention {
    const attention::Mask& mask;
    const nn::ForwardContext& step;
    attention::Cache* cache = nullptr;
    attention::Observer* observer = nullptr;
    at::Tensor keys = {};    // (B, Tk, d), states of the encoder; undefined: self-attention
    at::Tensor memory = {};  // (B, m, d), inputs from earlier segments, prepended to the keys of self-attention; or
                             // undefined
  };
  // Runs an attention sublayer and returns the tensors for the next sublayer, whose norm is `next`.
  Flow attend(Sublayer& part, const Flow& in, const LayerNorm& next, const Attention& attention) const;

  ModelOptions options_;
  int64_t layer_;
  std::string stream_;  // prefix of the names of random streams
  Sublayer self_;
  std::optional<Sublayer> cross_;
  FeedForward ffn_;
  LayerNorm ffn_norm_;
};

// Returns the attention layers of all blocks of the stacks, in order.
std::vector<attention::AttentionLayer*> attention_layers_of(std::initializer_list<std::deque<Block>*> stacks);

}  // namespace mh::model
