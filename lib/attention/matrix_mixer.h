// Mixers that map probabilities by one matrix of heads, and helpers for every mixer with a matrix.
#pragma once

#include "attention/head_mix.h"
#include "attention/stage.h"

namespace mh::attention {

// Mixes probabilities by matrix(), where that is defined, and leaves them unchanged elsewhere.
class MatrixMixer : public Mixer {
 public:
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor mix_values(const Context& c, const at::Tensor& probabilities) override;
  std::string unfused_because() const override { return ""; }
};

// Returns how a mixer reads logits and probabilities under the mask of a pass: entries that a causal mask hides are
// left out, and are 0 in the result.
inline Mixing mixing_under_mask(const Context& c) { return Mixing{c.mask.causal_offset()}; }

// Shows a learned matrix to the observer of a pass, if there is one.
void show_matrix(const Context& c, const at::Tensor& matrix);

// Traits of a matrix (score heads, value heads). No weight decay: it would pull the identity apart.
nn::Traits mixing_matrix(const Shape& shape, const nn::Init& init);

}  // namespace mh::attention
