// Mixhead A (Zhang et al. 2022): one matrix M (h, hv) for all positions, P̄_i = Σ_j M[j, i] P_j, with M = I at the
// start, or another initial matrix (option `init`). The layer computes y = Σ_j P_j X (Σ_i M[j, i] W^V_i W^O_i), so the
// product of value and output weights of score head j can have a rank of up to min(hv dv, d), instead of dv in
// multi-head attention.
#include "attention/methods/mixhead/mixhead.h"

namespace mh::attention {
namespace {

class MixheadA : public Mixhead {
 public:
  using Options = MixheadOptions;
  using Mixhead::Mixhead;

 private:
  void add_matrices(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    matrix_ = &parameters.add(layer_spec.name + kMixingMatrixName, {layer_spec.heads, layer_spec.value_heads},
                              mixing_matrix_traits(layer_spec, matrix_init(layer_spec)));
  }
  at::Tensor learned_matrix(const Context&) const override { return matrix_->value(); }

  nn::Parameter* matrix_ = nullptr;
};

const Registration<MixheadA> mixhead_a_entry(mixers(), "mixhead-a",
                                             "learned matrix that mixes probabilities across heads");

}  // namespace
}  // namespace mh::attention
