// Base class of Mixhead A and B (Zhang et al. 2022). It decides which layers and forward passes mix heads, and whether
// they mix logits or probabilities.
//
// Masked entries are 0 in every head, so mixed probabilities need no second mask. Logits are mixed before the mask,
// since a linear combination of minus infinities need not be minus infinity.
#pragma once

#include "attention/matrix_mixer.h"

namespace mh::attention {

struct MixheadOptions : OptionsOf<MixheadOptions> {
  bool dropout_before_mixing = false;
  std::string mixer_input = "probabilities";
  std::string scope = "all";
  std::string init = "identity";
  void describe(Fields& f) override;
};

class Mixhead : public MatrixMixer {
 public:
  Mixhead(const MixheadOptions& options, const LayerSpec& layer_spec);
  MixerInput mixer_input() const override;
  // With scope = "released" some forward passes do not mix, so the numbers of score heads and value heads must be
  // equal.
  bool can_change_head_count() const override { return layer_mixes_ && options_.scope == "all"; }
  at::Tensor mix_logits(const Context& c, const at::Tensor& logits) override;
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override;
  at::Tensor matrix(const Context& c) override;
  bool dropout_before_mixing() const override { return options_.dropout_before_mixing; }
  std::string why_not_fused() const override;
  bool is_per_query() const override { return true; }
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override;

 protected:
  // Returns the learned matrix (h, hv), or (B, Tq, h, hv) with one matrix for each query; rows are source heads.
  virtual at::Tensor learned_matrix(const Context& c) const = 0;
  virtual void add_matrices(nn::ParameterList& parameters, const LayerSpec& layer_spec) = 0;
  // Returns the initialiser of the learned matrix (M of Mixhead A, M0 of Mixhead B) that the option `init` selects.
  nn::Init matrix_init(const LayerSpec& layer_spec) const;

 private:
  bool mixes_in(const Context& c) const;
  MixheadOptions options_;
  bool layer_mixes_;  // false: no forward pass of this layer mixes heads
};

}  // namespace mh::attention
