// The options of Mixhead A and B, and the mixing of logits or probabilities.
#include "attention/methods/mixhead/mixhead.h"

namespace mh::attention {

void MixheadOptions::describe(Fields& f) {
  f.field("dropout_before_mixing", dropout_before_mixing,
          "apply dropout to the probabilities before mixing instead of after mixing");
  f.field("mixer_input", mixer_input, "tensor that is mixed across heads", {"probabilities", "logits"});
  f.field("scope", scope,
          "attention in which heads are mixed; all: all attention; released: all attention except cross-attention and "
          "incremental decoding, as in the code of the publication",
          {"all", "released"});
  f.field(
      "init", init,
      "initial mixing matrix, M of Mixhead A or M0 of Mixhead B; identity: plain attention at the start; "
      "random-normal, random-uniform, mean: the fixed matrix of the mixer of this name, which training then changes",
      {"identity", "random-normal", "random-uniform", "mean"});
}

Mixhead::Mixhead(const MixheadOptions& options, const LayerSpec& layer_spec)
    : options_(options), layer_mixes_(options.scope == "all" || layer_spec.kind != AttentionKind::decoder_cross) {}

MixerInput Mixhead::mixer_input() const {
  return !layer_mixes_                      ? MixerInput::nothing
         : options_.mixer_input == "logits" ? MixerInput::logits
                                            : MixerInput::probabilities;
}

bool Mixhead::mixes_in(const Context& c) const {
  return layer_mixes_ && (options_.scope == "all" || c.stage_states == nullptr);
}

at::Tensor Mixhead::mix_logits(const Context& c, const at::Tensor& logits) {
  if (options_.mixer_input != "logits" || !mixes_in(c)) return logits;
  const at::Tensor m = learned_matrix(c);
  show_matrix(c, m);
  return mix_heads(logits, m, causal_mix_options(c));
}

at::Tensor Mixhead::mix(const Context& c, const at::Tensor& probabilities) {
  const at::Tensor m = matrix(c);
  if (!m.defined()) return probabilities;
  show_matrix(c, m);
  return mix_heads(probabilities, m, causal_mix_options(c));
}

at::Tensor Mixhead::matrix(const Context& c) {
  return options_.mixer_input == "probabilities" && mixes_in(c) ? learned_matrix(c) : at::Tensor();
}

std::string Mixhead::why_not_fused() const {
  return layer_mixes_ && options_.mixer_input == "logits" ? "the mixer mixes logits" : "";
}

nn::Init Mixhead::matrix_init(const LayerSpec& layer_spec) const {
  if (options_.init == "random-normal") return nn::Init::normal_columns();
  if (options_.init == "random-uniform") return nn::Init::uniform_columns();
  if (options_.init == "mean") return nn::Init::constant(1 / static_cast<double>(layer_spec.heads));
  return nn::Init::identity();
}

void Mixhead::add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) {
  if (layer_mixes_) add_matrices(parameters, layer_spec);
}

}  // namespace mh::attention
