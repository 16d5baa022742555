// Mixhead B (Zhang et al. 2022): one matrix for each position, computed from its queries,
//   M[b, t, j, i] = Σ_c q[b, j, t, c] W[i, c] + M0[j, i],   P̄_i[t, s] = Σ_j M[t, j, i] P_j[t, s],
// with W = 0 and M0 = I at the start. q is projected with its bias, without the scale 1/√dk. Row j of M depends only on
// the query of head j. In cross-attention the queries are the decoder's.
#include "attention/methods/mixhead/mixhead.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

class MixheadB : public Mixhead {
 public:
  using Options = MixheadOptions;
  using Mixhead::Mixhead;

 private:
  void add_matrices(nn::ParameterList& parameters, const Shape& shape) override {
    query_ = &parameters.add(shape.name + ".mixer.query.weight", {shape.value_heads, shape.key_size},
                             {nn::Init::constant(0), false, false, {{0, shape.value_heads, HeadSide::value}}});
    matrix_ = &parameters.add(shape.name + ".mixer.matrix", {shape.heads, shape.value_heads},
                              mixing_matrix(shape, nn::Init::identity()));
  }
  at::Tensor learned(const Context& c) const override {
    // (B, T, h, dk) -> (B, T, h, hv)
    return nn::linear(c.q.transpose(1, 2), query_->value(), {}) + matrix_->value();
  }

  nn::Parameter *query_ = nullptr, *matrix_ = nullptr;
};

const Registered<MixheadB> mixhead_b_entry(mixers(), "mixhead-b",
                                           "a matrix across the heads for each position, from its queries");

}  // namespace
}  // namespace mh::attention
