// Base class of mixers that multiply the probabilities by a matrix across heads, and helpers for all mixers with such a
// matrix.
#pragma once

#include "attention/head_mix.h"
#include "attention/stage.h"

namespace mh::attention {

// Mixer that multiplies the probabilities by the result of matrix(), or leaves them unchanged if this result is
// undefined.
class MatrixMixer : public Mixer {
 public:
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor mix_values(const Context& c, const at::Tensor& probabilities) override;
  std::string why_not_fused() const override { return ""; }
};

// Returns the options with which mix_heads() and mix_values() skip the entries that a causal mask hides (MixOptions).
inline MixOptions causal_mix_options(const Context& c) { return MixOptions{c.mask.causal_offset()}; }

// Shows a learned mixing matrix to the observer of the forward pass, if there is one.
void show_matrix(const Context& c, const at::Tensor& matrix);

// Returns the traits of a mixing matrix (h, hv). Weight decay treats the matrix like biases and layer norms
// (nn::ParameterTraits::has_weight_decay), since decay would pull the matrix away from the identity matrix.
nn::ParameterTraits mixing_matrix_traits(const LayerSpec& layer_spec, const nn::Init& init);

}  // namespace mh::attention
