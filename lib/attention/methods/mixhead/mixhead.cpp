#include "attention/methods/mixhead/mixhead.h"

namespace mh::attention {

void MixheadOptions::describe(Fields& f) {
  f.field("dropout", dropout, "dropout after the mixing or before it", {"after", "before"});
  f.field("on", on, "what is mixed", {"probabilities", "logits"});
  f.field("scope", scope, "mix everywhere, or as the released code: not in cross-attention, nor in decoding by steps",
          {"all", "released"});
}

Mixhead::Mixhead(const MixheadOptions& options, const Shape& shape)
    : options_(options), in_layer_(options.scope == "all" || shape.kind != Kind::decoder_cross) {}

Mixes Mixhead::mixes() const {
  return !in_layer_ ? Mixes::nothing : options_.on == "logits" ? Mixes::logits : Mixes::probabilities;
}

bool Mixhead::acts_in(const Context& c) const { return in_layer_ && (options_.scope == "all" || c.state == nullptr); }

at::Tensor Mixhead::shown_matrix(const Context& c) const {
  at::Tensor m = learned(c);
  if (c.observer != nullptr) c.observer->show(c.shape, MixingObservation{m});
  return m;
}

at::Tensor Mixhead::mix_logits(const Context& c, const at::Tensor& logits) {
  return options_.on == "logits" && acts_in(c) ? mix_heads(logits, shown_matrix(c), mixing_under_mask(c)) : logits;
}

at::Tensor Mixhead::mix(const Context& c, const at::Tensor& probabilities) {
  return options_.on == "probabilities" && acts_in(c) ? mix_heads(probabilities, shown_matrix(c), mixing_under_mask(c))
                                                      : probabilities;
}

at::Tensor Mixhead::matrix(const Context& c) {
  return options_.on == "probabilities" && acts_in(c) ? learned(c) : at::Tensor();
}

at::Tensor Mixhead::mix_values(const Context& c, const at::Tensor& probabilities) {
  const at::Tensor m = matrix(c);
  return m.defined() ? attention::mix_values(probabilities, m, c.v, mixing_under_mask(c)) : m;
}

std::string Mixhead::unfused_because() const { return in_layer_ && options_.on == "logits" ? "it mixes logits" : ""; }

void Mixhead::add_parameters(nn::ParameterList& parameters, const Shape& shape) {
  if (in_layer_) add_matrices(parameters, shape);
}

nn::Traits mixing_matrix(const Shape& shape, const nn::Init& init) {
  return {init, false, false, {{0, shape.heads, HeadSide::score}, {1, shape.value_heads, HeadSide::value}}};
}

}  // namespace mh::attention
