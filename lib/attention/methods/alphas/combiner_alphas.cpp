// Multi-head mixing (Azov & Landau 2020): Z'_i = Σ_j α[i, j] Z_j before the output projection, with α = I at the start.
#include "attention/head_mix.h"
#include "attention/stage.h"
#include "attention/weighing.h"

namespace mh::attention {
namespace {

class Alphas : public Combiner {
 public:
  void add_parameters(nn::ParameterList& parameters, const Shape& shape) override {
    alpha_ = &parameters.add(shape.name + ".combiner.alpha", {shape.output_heads, shape.value_heads},
                             {nn::Init::identity(),
                              false,
                              false,
                              {{0, shape.output_heads, HeadSide::output}, {1, shape.value_heads, HeadSide::value}}});
  }
  bool mixes() const override { return true; }
  at::Tensor combine(const Context&, const at::Tensor& z) override {
    Mixing mixing;
    mixing.by_position = true;
    return join_heads(mix_heads(z, alpha_->value().t(), mixing));
  }
  at::Tensor folded() const override { return alpha_->master().t(); }
  std::string unfused_because() const override { return ""; }
  bool by_query() const override { return true; }

 private:
  nn::Parameter* alpha_ = nullptr;
};

const Registered<Alphas> alphas_entry(combiners(), "alphas", "a learned matrix across the head outputs");

}  // namespace
}  // namespace mh::attention
