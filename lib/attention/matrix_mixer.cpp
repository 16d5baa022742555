// Mixes probabilities by a matrix, and implements helpers for all mixers with a matrix.
#include "attention/matrix_mixer.h"

namespace mh::attention {

at::Tensor MatrixMixer::mix(const Context& c, const at::Tensor& probabilities) {
  const at::Tensor m = matrix(c);
  return m.defined() ? mix_heads(probabilities, m, causal_mix_options(c)) : probabilities;
}

at::Tensor MatrixMixer::mix_values(const Context& c, const at::Tensor& probabilities) {
  const at::Tensor m = matrix(c);
  return m.defined() ? attention::mix_values(probabilities, m, c.v, causal_mix_options(c)) : m;
}

void show_matrix(const Context& c, const at::Tensor& matrix) {
  if (c.observer != nullptr) c.observer->notify_subscribers(c.layer_spec, MixingObservation{matrix});
}

nn::ParameterTraits mixing_matrix_traits(const LayerSpec& layer_spec, const nn::Init& init) {
  return {init, false, false, {{0, layer_spec.heads, HeadSide::score}, {1, layer_spec.value_heads, HeadSide::value}}};
}

}  // namespace mh::attention
