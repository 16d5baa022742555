// The common part of both forms of Mixhead (Zhang et al. 2022): where in the layer they mix, and when.
//
// Masked entries are 0 in every head, so probabilities need no second mask. Logits are mixed before the mask: a mixture
// of minus infinities would be none.
#pragma once

#include "attention/matrix_mixer.h"

namespace mh::attention {

struct MixheadOptions : OptionsOf<MixheadOptions> {
  std::string dropout = "after";
  std::string on = "probabilities";
  std::string scope = "all";
  void describe(Fields& f) override;
};

class Mixhead : public MatrixMixer {
 public:
  Mixhead(const MixheadOptions& options, const Shape& shape);
  Mixes mixes() const override;
  // As the released code, heads that are not mixed in some places are the same on both sides.
  bool maps() const override { return in_layer_ && options_.scope == "all"; }
  at::Tensor mix_logits(const Context& c, const at::Tensor& logits) override;
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor matrix(const Context& c) override;
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
  MixheadOptions options_;
  bool in_layer_;  // false: this layer does not mix at all
};

}  // namespace mh::attention
