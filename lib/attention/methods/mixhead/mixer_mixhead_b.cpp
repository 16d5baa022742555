// Mixhead B (Zhang et al. 2022): one mixing matrix for each position, computed from the queries at this position,
//   M[b, t, j, i] = Σ_c q[b, j, t, c] W[i, c] + M0[j, i],   P̄_i[t, s] = Σ_j M[t, j, i] P_j[t, s],
// with W = 0 and M0 = I at the start (M0: option `init`). q is projected with its bias and without the scale 1/√dk. Row
// j of M depends only on the query of head j. In cross-attention the queries come from the decoder. If a transform adds
// positions to queries, q is the query before it, since otherwise M would depend on the absolute position.
#include "attention/methods/mixhead/mixhead.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

class MixheadB : public Mixhead {
 public:
  using Options = MixheadOptions;
  using Mixhead::Mixhead;

 private:
  void add_matrices(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    query_weight_ =
        &parameters.add(layer_spec.name + ".mixer.query.weight", {layer_spec.value_heads, layer_spec.key_size},
                        {nn::Init::constant(0), false, false, {{0, layer_spec.value_heads, HeadSide::value}}});
    matrix_ = &parameters.add(layer_spec.name + kMixingMatrixName, {layer_spec.heads, layer_spec.value_heads},
                              mixing_matrix_traits(layer_spec, matrix_init(layer_spec)));
  }
  at::Tensor learned_matrix(const Context& c) const override {
    // (B, T, h, dk) -> (B, T, h, hv)
    return nn::linear(c.query_without_positions().transpose(1, 2), query_weight_->value(), {}) + matrix_->value();
  }

  nn::Parameter *query_weight_ = nullptr, *matrix_ = nullptr;
};

const Registration<MixheadB> mixhead_b_entry(
    mixers(), "mixhead-b", "matrix, computed at each position from the queries, that mixes probabilities across heads");

}  // namespace
}  // namespace mh::attention
