// Implements a transformer layer with pre-norm or post-norm. The layer supports the memory of Transformer-XL, and
// interceptors that repeat rows (attention::Variants).
#include "model/block.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "nn/recompute.h"

namespace mh::model {

namespace {

// Returns the initialisers of attention projections. fairseq: Xavier-uniform weights, with gain 1/√2 in the projections
// to queries, keys and values; the biases of these three projections are uniform within ±1/√d (PyTorch's default for a
// linear layer). bert: truncated normal weights, biases 0. transformer-xl: normal weights, biases 0.
attention::AttentionLayer::Inits attention_inits(const ModelOptions& options) {
  if (options.init == InitScheme::bert)
    return {nn::Init::truncated_normal(0.02), nn::Init::constant(0), nn::Init::truncated_normal(0.02)};
  if (options.init == InitScheme::transformer_xl)
    return {nn::Init::normal(0.02), nn::Init::constant(0), nn::Init::normal(0.02)};
  return {nn::Init::xavier_uniform(1 / std::sqrt(2.0)),
          nn::Init::uniform(1 / std::sqrt(static_cast<double>(options.width))), nn::Init::xavier_uniform()};
}

}  // namespace

// In the scheme transformer-xl, initial weights of layer norms are normal with mean 1 and standard deviation 0.02; in
// other schemes they are 1.
LayerNorm::LayerNorm(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options)
    : weight_(parameters.add(
          name + ".weight", {options.width},
          {options.init == InitScheme::transformer_xl ? nn::Init::normal(1, 0.02) : nn::Init::constant(1), false,
           false})),
      bias_(parameters.add(name + ".bias", {options.width}, {nn::Init::constant(0), false, false})),
      epsilon_(options.norm_epsilon) {}

FeedForward::FeedForward(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options,
                         std::string stream_prefix)
    : activation_(options.activation), dropout_(options.dropout_activation), stream_prefix_(std::move(stream_prefix)) {
  nn::Init weight_init = options.init == InitScheme::bert             ? nn::Init::truncated_normal(0.02)
                         : options.init == InitScheme::transformer_xl ? nn::Init::normal(0.02)
                                                                      : nn::Init::xavier_uniform();
  auto add = [&](const char* suffix, std::vector<int64_t> shape, bool is_weight) {
    return &parameters.add(name + suffix, std::move(shape),
                           {is_weight ? weight_init : nn::Init::constant(0), is_weight, is_weight});
  };
  up_weight_ = add(".up.weight", {options.ffn, options.width}, true);
  up_bias_ = add(".up.bias", {options.ffn}, false);
  down_weight_ = add(".down.weight", {options.width, options.ffn}, true);
  down_bias_ = add(".down.bias", {options.width}, false);
}

at::Tensor FeedForward::operator()(const at::Tensor& x, const nn::ForwardContext& forward_context,
                                   int64_t layer) const {
  at::Tensor activations = nn::linear(x, {up_weight_}, {up_bias_}, activation_);
  activations = nn::dropout(activations, dropout_, forward_context, stream_prefix_ + "ffn.activation",
                            static_cast<uint32_t>(layer));
  return nn::linear(activations, {down_weight_}, {down_bias_});
}

Block::Sublayer Block::make_sublayer(nn::ParameterList& parameters, const ModelConfig& config,
                                     attention::AttentionKind kind, const std::string& name,
                                     std::string stream_name) const {
  const attention::AttentionOptions& options = config.attention.layer(kind, layer_);
  attention::AttentionLayer layer(parameters, options,
                                  attention::make_layer_spec(options, kind, layer_, config.model.width, name),
                                  attention_inits(config.model));
  return {std::move(layer), LayerNorm(parameters, name + ".norm", config.model), std::move(stream_name)};
}

Block::Block(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind, int64_t layer,
             const std::string& name, bool has_cross_attention)
    : options_(config.model),
      layer_(layer),
      stream_prefix_(kind == attention::AttentionKind::encoder_self ? "encoder." : ""),
      self_attention_(make_sublayer(parameters, config, kind, name + ".self", stream_prefix_ + "attention.output")),
      cross_attention_(has_cross_attention
                           ? std::optional(make_sublayer(parameters, config, attention::AttentionKind::decoder_cross,
                                                         name + ".cross", "cross.output"))
                           : std::nullopt),
      ffn_(parameters, name + ".ffn", config.model, stream_prefix_),
      ffn_norm_(parameters, name + ".ffn.norm", config.model) {}

std::vector<attention::AttentionLayer*> Block::attention_layers() {
  if (!cross_attention_) return {&self_attention_.layer};
  return {&self_attention_.layer, &cross_attention_->layer};
}

std::vector<attention::AttentionLayer*> attention_layers_of(std::initializer_list<std::deque<Block>*> stacks) {
  std::vector<attention::AttentionLayer*> layers;
  for (std::deque<Block>* blocks : stacks)
    for (Block& block : *blocks)
      for (attention::AttentionLayer* layer : block.attention_layers()) layers.push_back(layer);
  return layers;
}

at::Tensor Block::repeat_for_variants(const at::Tensor& x) const {
  const at::Tensor repeated_x = self_attention_.layer.repeat_for_variants(x);
  return cross_attention_ ? cross_attention_->layer.repeat_for_variants(repeated_x) : repeated_x;
}

Block::SublayerState Block::add_residual(const at::Tensor& x, const at::Tensor& y,
                                         const nn::DropoutArguments& dropout_arguments, const LayerNorm& sublayer_norm,
                                         const LayerNorm* next_norm) const {
  if (options_.norm == Norm::post) {
    const at::Tensor norm = sublayer_norm.norm_of_sum(x, y, dropout_arguments);
    return {norm, norm};
  }
  if (next_norm == nullptr) return {nn::add(x, y, dropout_arguments), {}};
  const nn::SumAndNorm sum_and_norm = next_norm->add_and_norm(x, y, dropout_arguments);
  return {sum_and_norm.sum, sum_and_norm.norm};
}

Block::SublayerState Block::attend(Sublayer& sublayer, const SublayerState& state, const LayerNorm& next_norm,
                                   const AttentionInputs& inputs) const {
  const at::Tensor &x = state.x, &memory = inputs.memory;
  at::Tensor query_input = state.sublayer_input, key_input = inputs.encoder_states;
  if (!inputs.encoder_states.defined()) {
    key_input = query_input;
    if (memory.defined()) {
      key_input = at::cat({memory, x}, 1);
      if (options_.norm == Norm::pre) {
        key_input = sublayer.norm(key_input);
        query_input = key_input.narrow(1, memory.size(1), x.size(1));
      }
    }
  }
  const at::Tensor y = sublayer.layer.forward(query_input, key_input, inputs.mask, inputs.forward_context, inputs.cache,
                                              inputs.observer);
  // The interceptor of the attention layer may have repeated the rows of y for its variants (attention::Variants).
  const at::Tensor residual = y.size(0) > x.size(0) ? sublayer.layer.repeat_for_variants(x) : x;
  return add_residual(
      residual, y,
      {options_.dropout_attention, inputs.forward_context, sublayer.stream_name, static_cast<uint32_t>(layer_)},
      sublayer.norm, &next_norm);
}

at::Tensor Block::forward(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& forward_context,
                          const Caches& caches, attention::Observer* observer, const at::Tensor& memory,
                          EncoderOutput* encoder_output) {
  if (!forward_context.recomputes_layers)
    return compute(x, mask, forward_context, caches, observer, memory, encoder_output);
  if (observer != nullptr || caches.self != nullptr || caches.cross != nullptr)
    throw std::logic_error("expected a layer without observer and caches, since it recomputes its activations");
  std::vector<at::Tensor> inputs{x};
  if (encoder_output != nullptr) inputs.push_back(encoder_output->states);
  const attention::Mask encoder_mask = encoder_output != nullptr ? encoder_output->mask : attention::Mask();
  return nn::recompute(inputs, [this, mask, forward_context, memory, encoder_mask](
                                   const std::vector<at::Tensor>& layer_inputs, bool is_recomputation) {
    nn::ForwardContext layer_context = forward_context;
    layer_context.is_recomputation = is_recomputation;
    const bool has_encoder = layer_inputs.size() > 1;
    EncoderOutput layer_encoder_output{has_encoder ? layer_inputs[1] : at::Tensor(), encoder_mask};
    return compute(layer_inputs[0], mask, layer_context, {}, nullptr, memory,
                   has_encoder ? &layer_encoder_output : nullptr);
  });
}

at::Tensor Block::compute(const at::Tensor& x, const attention::Mask& mask, const nn::ForwardContext& forward_context,
                          const Caches& caches, attention::Observer* observer, const at::Tensor& memory,
                          EncoderOutput* encoder_output) {
  // With pre-norm and a memory, attend() normalises the concatenation of the memory and x.
  const bool normalises_x = options_.norm == Norm::pre && !memory.defined();
  SublayerState state = attend(
      self_attention_, {x, normalises_x ? self_attention_.norm(x) : x},
      cross_attention_ ? cross_attention_->norm : ffn_norm_,
      {.mask = mask, .forward_context = forward_context, .cache = caches.self, .observer = observer, .memory = memory});
  if (cross_attention_) {
    const auto repeat_encoder_output = [&](const attention::AttentionLayer& layer) {
      for (at::Tensor* t :
           {&encoder_output->states, &encoder_output->mask.key_lengths, &encoder_output->mask.query_lengths})
        *t = layer.repeat_for_variants(*t);
    };
    repeat_encoder_output(self_attention_.layer);
    const int64_t num_sources = encoder_output->states.size(0);
    const auto sizes = state.x.sizes().vec();
    // For cross-attention, the queries of consecutive decoder rows with the same source are joined in a single row.
    const bool packs_rows = num_sources < sizes[0];
    if (packs_rows)
      for (at::Tensor* t : {&state.x, &state.sublayer_input}) *t = t->view({num_sources, -1, sizes[2]});
    state = attend(*cross_attention_, state, ffn_norm_,
                   {.mask = encoder_output->mask,
                    .forward_context = forward_context,
                    .cache = caches.cross,
                    .observer = observer,
                    .encoder_states = encoder_output->states});
    if (packs_rows)
      for (at::Tensor* t : {&state.x, &state.sublayer_input}) *t = t->view(sizes);
    repeat_encoder_output(cross_attention_->layer);
  }
  const at::Tensor z = ffn_(state.sublayer_input, forward_context, layer_);
  return add_residual(
             state.x, z,
             {options_.dropout_ffn, forward_context, stream_prefix_ + "ffn.output", static_cast<uint32_t>(layer_)},
             ffn_norm_, nullptr)
      .x;
}

}  // namespace mh::model
