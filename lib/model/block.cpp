// Implements a transformer layer with norms before or after its sublayers, and with sequential or parallel residual
// connections. The layer supports the memory of Transformer-XL, and interceptors that repeat rows
// (attention::Variants).
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

// In the scheme transformer-xl, initial weights of norms are normal with mean 1 and standard deviation 0.02; in other
// schemes they are 1.
NormLayer::NormLayer(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options)
    : type_(options.norm_type),
      epsilon_(options.norm_epsilon),
      weight_(parameters.add(
          name + ".weight", {options.width},
          {options.init == InitScheme::transformer_xl ? nn::Init::normal(1, 0.02) : nn::Init::constant(1), false,
           false})),
      bias_(options.norm_bias && type_ == nn::NormType::layer
                ? &parameters.add(name + ".bias", {options.width}, {nn::Init::constant(0), false, false})
                : nullptr) {}

std::unique_ptr<NormLayer> make_final_norm(nn::ParameterList& parameters, const std::string& name,
                                           const ModelOptions& options) {
  if (!options.final_norm || options.norm == Norm::post) return nullptr;
  return std::make_unique<NormLayer>(parameters, name, options);
}

FeedForward::FeedForward(nn::ParameterList& parameters, const std::string& name, const ModelOptions& options,
                         std::string stream_prefix)
    : activation_(options.activation), dropout_(options.dropout_activation), stream_prefix_(std::move(stream_prefix)) {
  nn::Init weight_init = options.init == InitScheme::bert             ? nn::Init::truncated_normal(0.02)
                         : options.init == InitScheme::transformer_xl ? nn::Init::normal(0.02)
                                                                      : nn::Init::xavier_uniform();
  const auto add_weight = [&](const char* suffix, int64_t num_outputs, int64_t num_inputs) {
    return &parameters.add(name + suffix, {num_outputs, num_inputs}, {weight_init, true, true});
  };
  const auto add_bias = [&](const char* suffix, int64_t num_outputs) {
    return options.ffn_bias ? &parameters.add(name + suffix, {num_outputs}, {nn::Init::constant(0), false, false})
                            : nullptr;
  };
  if (options.gated_ffn) {
    gate_weight_ = add_weight(".gate.weight", options.ffn_dim, options.width);
    gate_bias_ = add_bias(".gate.bias", options.ffn_dim);
  }
  up_weight_ = add_weight(".up.weight", options.ffn_dim, options.width);
  up_bias_ = add_bias(".up.bias", options.ffn_dim);
  down_weight_ = add_weight(".down.weight", options.width, options.ffn_dim);
  down_bias_ = add_bias(".down.bias", options.width);
}

at::Tensor FeedForward::operator()(const at::Tensor& x, const nn::ForwardContext& forward_context,
                                   int64_t layer) const {
  at::Tensor activations =
      gate_weight_ != nullptr
          ? nn::gated_activation(nn::linear(x, {gate_weight_, up_weight_}, {gate_bias_, up_bias_}), activation_)
          : nn::linear(x, {up_weight_}, {up_bias_}, activation_);
  activations = nn::dropout(activations, dropout_, forward_context, stream_prefix_ + "ffn.activation",
                            static_cast<uint32_t>(layer));
  return nn::linear(activations, {down_weight_}, {down_bias_});
}

Block::SublayerNorms Block::make_norms(nn::ParameterList& parameters, const std::string& name,
                                       const ModelOptions& options, bool has_norm_before) {
  SublayerNorms norms;
  if (options.norm != Norm::output && has_norm_before)
    norms.norm = std::make_unique<NormLayer>(parameters, name + ".norm", options);
  if (options.norm == Norm::around || options.norm == Norm::output)
    norms.output_norm = std::make_unique<NormLayer>(parameters, name + ".output_norm", options);
  return norms;
}

Block::Sublayer Block::make_sublayer(nn::ParameterList& parameters, const ModelConfig& config,
                                     attention::AttentionKind kind, const std::string& name, std::string stream_name,
                                     bool has_norm_before) const {
  const attention::AttentionOptions& options = config.attention.layer(kind, layer_);
  attention::AttentionLayer layer(parameters, options,
                                  attention::make_layer_spec(options, kind, layer_, config.model.width, name),
                                  attention_inits(config.model));
  return {std::move(layer), make_norms(parameters, name, config.model, has_norm_before), std::move(stream_name)};
}

Block::Block(nn::ParameterList& parameters, const ModelConfig& config, attention::AttentionKind kind, int64_t layer,
             const std::string& name, bool has_cross_attention)
    : options_(config.model),
      layer_(layer),
      stream_prefix_(kind == attention::AttentionKind::encoder_self ? "encoder." : ""),
      ffn_stream_name_(stream_prefix_ + "ffn.output"),
      self_attention_(make_sublayer(parameters, config, kind, name + ".self", stream_prefix_ + "attention.output",
                                    layer > 0 || config.model.first_norm)),
      cross_attention_(has_cross_attention
                           ? std::optional(make_sublayer(parameters, config, attention::AttentionKind::decoder_cross,
                                                         name + ".cross", "cross.output"))
                           : std::nullopt),
      ffn_(parameters, name + ".ffn", config.model, stream_prefix_),
      ffn_norms_(
          make_norms(parameters, name + ".ffn", config.model, config.model.residual != Residual::parallel_shared)) {}

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
                                         const nn::DropoutArguments& dropout_arguments, const SublayerNorms& norms,
                                         const NormLayer* next_norm) const {
  if (options_.norm == Norm::post) {
    const at::Tensor norm = norms.norm->norm_of_sum(x, y, dropout_arguments);
    return {norm, norm};
  }
  const at::Tensor output = norms.normalise_output(y);
  if (next_norm == nullptr) {
    const at::Tensor sum = nn::add(x, output, dropout_arguments);
    return {sum, sum};
  }
  const nn::SumAndNorm sum_and_norm = next_norm->add_and_norm(x, output, dropout_arguments);
  return {sum_and_norm.sum, sum_and_norm.norm};
}

at::Tensor Block::attention_output(Sublayer& sublayer, const SublayerState& state,
                                   const AttentionInputs& inputs) const {
  const at::Tensor &x = state.x, &memory = inputs.memory;
  at::Tensor query_input = state.sublayer_input, key_input = inputs.encoder_states;
  if (!inputs.encoder_states.defined()) {
    key_input = query_input;
    if (memory.defined()) {
      key_input = nn::cat({memory, x}, 1);
      if (const NormLayer* norm = norm_before(sublayer.norms); norm != nullptr) {
        key_input = (*norm)(key_input);
        query_input = key_input.narrow(1, memory.size(1), x.size(1));
      }
    }
  }
  return sublayer.layer.forward(query_input, key_input, inputs.mask, inputs.forward_context, inputs.cache,
                                inputs.observer);
}

Block::SublayerState Block::attend(Sublayer& sublayer, const SublayerState& state, const SublayerNorms& next_norms,
                                   const AttentionInputs& inputs) const {
  const at::Tensor &x = state.x, y = attention_output(sublayer, state, inputs);
  const at::Tensor residual = y.size(0) > x.size(0) ? sublayer.layer.repeat_for_variants(x) : x;
  return add_residual(residual, y, attention_dropout(sublayer, inputs.forward_context), sublayer.norms,
                      norm_before(next_norms));
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
  const AttentionInputs self_inputs{
      .mask = mask, .forward_context = forward_context, .cache = caches.self, .observer = observer, .memory = memory};
  if (options_.residual != Residual::sequential) return compute_parallel(x, self_inputs);
  // With a norm before the sublayer and a memory, attention_output() normalises the concatenation of the memory and x.
  const NormLayer* norm = memory.defined() ? nullptr : norm_before(self_attention_.norms);
  SublayerState state = attend(self_attention_, {x, norm != nullptr ? (*norm)(x) : x},
                               cross_attention_ ? cross_attention_->norms : ffn_norms_, self_inputs);
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
    state = attend(*cross_attention_, state, ffn_norms_,
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
  return add_residual(state.x, z, ffn_dropout(forward_context), ffn_norms_, nullptr).x;
}

at::Tensor Block::compute_parallel(const at::Tensor& x, const AttentionInputs& inputs) {
  // With a norm before attention and a memory, attention_output() normalises the concatenation of the memory and x. The
  // feed-forward sublayer reads the norm of x alone if it has no norm of its own.
  const NormLayer *ffn_norm = norm_before(ffn_norms_), *norm = ffn_norm == nullptr || !inputs.memory.defined()
                                                                   ? norm_before(self_attention_.norms)
                                                                   : nullptr;
  const at::Tensor attention_input = norm != nullptr ? (*norm)(x) : x,
                   ffn_input = ffn_norm != nullptr ? (*ffn_norm)(x) : attention_input;
  const at::Tensor y = attention_output(self_attention_, {x, attention_input}, inputs),
                   z = ffn_(ffn_input, inputs.forward_context, layer_);
  const auto repeat_rows = [&](const at::Tensor& t) {
    return y.size(0) > x.size(0) ? self_attention_.layer.repeat_for_variants(t) : t;
  };
  const at::Tensor sum = nn::add(repeat_rows(x), self_attention_.norms.normalise_output(y),
                                 attention_dropout(self_attention_, inputs.forward_context));
  return nn::add(sum, repeat_rows(ffn_norms_.normalise_output(z)), ffn_dropout(inputs.forward_context));
}

}  // namespace mh::model
