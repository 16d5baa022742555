// Base class of mixers that multiply the probabilities by a matrix across heads, and helpers for all mixers with such a
// matrix.
#pragma once

#include "attention/head_mix.h"
#include "attention/stage.h"

namespace mh::attention {

// Mixes probabilities by matrix(); returns them unchanged if matrix() is undefined.
class MatrixMixer : public Mixer {
 public:
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor mix_values(const Context& c, const at::Tensor& probabilities) override;
  std::string why_not_fused() const override { return ""; }
};

// Returns the options of mix_heads() under the mask of a pass: entries that a causal mask hides are skipped.
inline Mixing mixing_under_mask(const Context& c) { return Mixing{c.mask.causal_offset()}; }

// Shows a learned matrix to the observer of a pass, if there is one.
void show_matrix(const Context& c, const at::Tensor& matrix);

// Returns the traits of a mixing matrix (score heads, value heads). No weight decay: it would pull the matrix away from
// the identity.
nn::Traits mixing_matrix(const LayerSpec& layer_spec, const nn::Init& init);

}  // namespace mh::attention
