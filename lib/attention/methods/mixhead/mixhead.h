// What both forms of Mixhead (Zhang et al. 2022) share: where in the layer they mix, and when.
//
// Masked entries are 0 in every head, so probabilities need no second mask. Logits are mixed before the mask: a mixture
// of minus infinities would be none.
#pragma once

#include "attention/head_mix.h"
#include "attention/stage.h"

namespace mh::attention {

struct MixheadOptions : OptionsOf<MixheadOptions> {
  std::string dropout = "after";
  std::string on = "probabilities";
  std::string scope = "all";
  void describe(Fields& f) override;
};

class Mixhead : public Mixer {
 public:
  Mixhead(const MixheadOptions& options, const Shape& shape);
  Mixes mixes() const override;
  // As the released code, heads that are not mixed in some places are the same on both sides.
  bool maps() const override { return in_layer_ && options_.scope == "all"; }
  at::Tensor mix_logits(const Context& c, const at::Tensor& logits) override;
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor matrix(const Context& c) override;
  at::Tensor mix_values(const Context& c, const at::Tensor& probabilities) override;
  bool dropout_before() const override { return options_.dropout == "before"; }
  std::string unfused_because() const override;
  bool by_query() const override { return true; }
  void add_parameters(nn::ParameterList& parameters, const Shape& shape) override;

 protected:
  // (h, h), or (B, Tq, h, h): row of the source head, column of the output head.
  virtual at::Tensor learned(const Context& c) const = 0;
  virtual void add_matrices(nn::ParameterList& parameters, const Shape& shape) = 0;

 private:
  bool acts_in(const Context& c) const;
  at::Tensor shown_matrix(const Context& c) const;  // the observer is shown it
  MixheadOptions options_;
  bool in_layer_;  // false: this layer does not mix at all
};

// How a mixer may look at logits and probabilities: what a causal mask hides counts for nothing, or is 0.
inline Mixing mixing_under_mask(const Context& c) { return Mixing{c.mask.causal_offset()}; }

// (h, h): row j of source head j, column i of value head i. No weight decay: it would pull the identity apart.
nn::Traits mixing_matrix(const Shape& shape, const nn::Init& init);

}  // namespace mh::attention
