// A transformer layer: self-attention, cross-attention (in a decoder with an encoder) and feed-forward sublayers, each
// with norms, dropout and a residual connection.
#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/layer.h"
#include "model/model_config.h"

namespace mh::model {

// A norm over the last axis (d) of the type model.norm_type, with its parameter `weight`, and with `bias` if it is a
// layer norm and model.norm_bias is set.
class NormLayer {
 public:
  NormLayer(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options);
  at::Tensor operator()(const at::Tensor& x) const { return nn::apply_norm(x, arguments()); }
  // Returns norm(x + dropout(y)), (B, T, d) for x and y (B, T, d).
  at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y,
                         const nn::DropoutArguments& dropout_arguments) const {
    return nn::norm_of_sum(x, y, dropout_arguments, arguments());
  }
  // Returns the residual sum x + dropout(y) and the norm of this sum, (B, T, d) each, for x and y (B, T, d).
  nn::SumAndNorm add_and_norm(const at::Tensor& x, const at::Tensor& y,
                              const nn::DropoutArguments& dropout_arguments) const {
    return nn::add_and_norm(x, y, dropout_arguments, arguments());
  }

 private:
  nn::NormArguments arguments() const {
    return {weight_.value(), bias_ != nullptr ? bias_->value() : at::Tensor(), epsilon_, type_};
  }

  nn::NormType type_;
  double epsilon_;
  nn::Parameter& weight_;
  nn::Parameter* bias_;  // null: no bias
};

// Creates the norm after the last layer of a stack, with the parameters `name`.weight and `name`.bias; null if
// model.final_norm is false or model.norm is post, which normalises the output of the last layer.
std::unique_ptr<NormLayer> make_final_norm(nn::ParameterList& parameters, const std::string& name,
                                           const ModelOptions& options);

// The feed-forward sublayer, y = W_down dropout(activation(W_up x + b_up)) + b_down. With model.gated_ffn it is
// y = W_down dropout(activation(W_gate x + b_gate) ∘ (W_up x + b_up)) + b_down (Shazeer 2020). Without model.ffn_bias
// there are no biases.
class FeedForward {
 public:
  // `name`: prefix of the parameters' names. `stream_prefix`: prefix of the name of the random stream for dropout.
  FeedForward(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options,
              std::string stream_prefix);
  // Returns y (B, T, d) for x (B, T, d). `layer`: index of the layer, which selects the random numbers of dropout.
  at::Tensor operator()(const at::Tensor& x, const nn::ForwardContext& forward_context, int64_t layer) const;

 private:
  nn::Activation activation_;
  double dropout_;
  std::string stream_prefix_;
  // Null pointers: no gate, no bias.
  nn::Parameter *gate_weight_ = nullptr, *gate_bias_ = nullptr;
  nn::Parameter *up_weight_, *up_bias_, *down_weight_, *down_bias_;
};

// The output of an encoder, which the cross-attention of a decoder reads.
struct EncoderOutput {
  // Last hidden states of the encoder, (B, S, d) for B decoder rows. In decoding, (B/n, S, d) if the decoder rows form
  // groups of n consecutive rows with the same source, and if all cross-attention layers satisfy
  // AttentionLayer::is_per_query().
  at::Tensor states;
  attention::Mask mask;  // key_lengths: lengths of the sources; query_lengths: lengths of the targets
};

class Block {
 public:
  // `layer`: index of the layer, from 0. `name`: prefix of the parameters' names, such as "decoder.layers.3".
  // `has_cross_attention`: whether the layer attends to an encoder.
  Block(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind, int64_t layer,
        const std::string& name, bool has_cross_attention = false);

  // Key/value caches for decoding; null without decoding.
  struct Caches {
    attention::Cache* self = nullptr;
    attention::Cache* cross = nullptr;
  };
  // Returns the output (B, T, d) of the layer for x (B, T, d). `memory`: (B, m, d), inputs of this layer from earlier
  // segments, whose keys and values precede the keys and values of x; or undefined. `encoder_output`: output of the
  // encoder, required if the layer has cross-attention. If an interceptor repeats the rows of x for its variants
  // (attention::Variants), the output has more rows, and the call replaces encoder_output->states and the lengths in
  // encoder_output->mask by tensors with the rows repeated in the same way. With forward_context.recomputes_layers, the
  // backward pass computes the activations of the layer again; `caches` and `observer` must then be null.
  at::Tensor forward(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& forward_context,
                     const Caches& caches, attention::Observer* observer, const at::Tensor& memory = {},
                     EncoderOutput* encoder_output = nullptr);
  // Returns x (B, …) with each row repeated as forward() repeats the rows of its input, for the interceptors of all
  // attention layers of the block.
  at::Tensor repeat_for_variants(const at::Tensor& x) const;
  attention::AttentionLayer& self_attention() { return self_attention_.layer; }
  const attention::AttentionLayer& self_attention() const { return self_attention_.layer; }
  // Returns the self-attention layer, followed by the cross-attention layer if there is one. The block owns the layers.
  std::vector<attention::AttentionLayer*> attention_layers();

 private:
  // The norms of a sublayer, which depend on model.norm and model.residual; null pointers: no such norm.
  struct SublayerNorms {
    std::unique_ptr<NormLayer> norm;         // before the sublayer; after its residual sum with post-norm
    std::unique_ptr<NormLayer> output_norm;  // on the output of the sublayer, before the residual sum
    // Returns the output y (B, T, d) of the sublayer, normalised if there is a norm for it.
    at::Tensor normalise_output(const at::Tensor& y) const { return output_norm != nullptr ? (*output_norm)(y) : y; }
  };
  // `has_norm_before`: whether the sublayer has a norm of its own input where model.norm has one.
  static SublayerNorms make_norms(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options,
                                  bool has_norm_before = true);
  // A self-attention or cross-attention sublayer.
  struct Sublayer {
    attention::AttentionLayer layer;
    SublayerNorms norms;
    std::string stream_name;  // name of the random stream for dropout of the sublayer's output
  };
  // `has_norm_before` as in make_norms().
  Sublayer make_sublayer(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind,
                         const std::string& name, std::string stream_name, bool has_norm_before = true) const;
  // Returns the norm before a sublayer; null if it has none, as with model.norm=post and model.first_norm=false.
  const NormLayer* norm_before(const SublayerNorms& norms) const {
    return options_.norm == Norm::pre || options_.norm == Norm::around ? norms.norm.get() : nullptr;
  }
  nn::DropoutArguments attention_dropout(const Sublayer& sublayer, const nn::ForwardContext& forward_context) const {
    return {options_.dropout_attention, forward_context, sublayer.stream_name, static_cast<uint32_t>(layer_)};
  }
  nn::DropoutArguments ffn_dropout(const nn::ForwardContext& forward_context) const {
    return {options_.dropout_ffn, forward_context, ffn_stream_name_, static_cast<uint32_t>(layer_)};
  }
  // The tensors between two sublayers, (B, T, d) each. `x`: the residual stream. `sublayer_input`: the input of the
  // next sublayer, norm(x) if a norm precedes the sublayer, otherwise x. Before self-attention with a memory,
  // `sublayer_input` is always x, since attention_output() normalises x together with the memory.
  struct SublayerState {
    at::Tensor x, sublayer_input;
  };
  // Adds the output y of a sublayer to the residual stream x and returns the tensors for the next sublayer. `norms`:
  // norms of the sublayer that computed y. `next_norm`: norm before the next sublayer; null if no norm precedes it, or
  // after the last sublayer.
  SublayerState add_residual(const at::Tensor& x, const at::Tensor& y, const nn::DropoutArguments& dropout_arguments,
                             const SublayerNorms& norms, const NormLayer* next_norm) const;
  // The arguments of attend() other than the sublayer, its input and the next norm.
  struct AttentionInputs {
    const attention::Mask& mask;
    const nn::ForwardContext& forward_context;
    attention::Cache* cache = nullptr;
    attention::Observer* observer = nullptr;
    at::Tensor encoder_states = {};  // (B, S, d), last hidden states of the encoder; undefined in self-attention
    at::Tensor memory = {};  // (B, m, d), inputs of the layer from earlier segments, prepended to the key input of
                             // self-attention; or undefined
  };
  // Computes the result of forward().
  at::Tensor compute(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& forward_context,
                     const Caches& caches, attention::Observer* observer, const at::Tensor& memory,
                     EncoderOutput* encoder_output);
  // Computes the result of forward() with a parallel residual connection.
  at::Tensor compute_parallel(const at::Tensor& x, const AttentionInputs& inputs);
  // Returns the output (B', T, d) of an attention layer for `state`, before its output norm and the residual sum. B'
  // exceeds B if the interceptor of the layer has repeated the rows for its variants (attention::Variants).
  at::Tensor attention_output(Sublayer& sublayer, const SublayerState& state, const AttentionInputs& inputs) const;
  // Runs an attention sublayer on `state` and returns the tensors for the next sublayer. `next_norms`: norms of the
  // next sublayer.
  SublayerState attend(Sublayer& sublayer, const SublayerState& state, const SublayerNorms& next_norms,
                       const AttentionInputs& inputs) const;

  ModelOptions options_;
  int64_t layer_;
  std::string stream_prefix_;    // prefix of random-stream names: "encoder." in an encoder, otherwise empty
  std::string ffn_stream_name_;  // name of the random stream for dropout of the output of the feed-forward sublayer
  Sublayer self_attention_;
  std::optional<Sublayer> cross_attention_;
  FeedForward ffn_;
  SublayerNorms ffn_norms_;
};

// Returns the attention layers of all blocks of the stacks, in the order of the stacks and blocks. The blocks own the
// layers.
std::vector<attention::AttentionLayer*> attention_layers_of(std::initializer_list<std::deque<Block>*> stacks);

}  // namespace mh::model
