// Multi-head mixing (Azov & Landau 2020): mixes head outputs by a learned matrix α (ho, hv) before the output
// projection, Z'_i = Σ_j α[i, j] Z_j, with α = I at the start.
#include "attention/head_mix.h"
#include "attention/methods/alphas/alphas.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Alphas : public Combiner {
 public:
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    alpha_ = &parameters.add(
        layer_spec.name + kAlphaName, {layer_spec.output_heads, layer_spec.value_heads},
        {nn::Init::identity(),
         false,
         false,
         {{0, layer_spec.output_heads, HeadSide::output}, {1, layer_spec.value_heads, HeadSide::value}}});
  }
  bool mixes_heads() const override { return true; }
  at::Tensor combine(const Context&, const at::Tensor& z) override {
    MixOptions mix_options;
    mix_options.stores_by_position = true;
    return mix_heads(z, alpha_->value().t(), mix_options);
  }
  at::Tensor as_linear_map() const override { return alpha_->master().t(); }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }

 private:
  nn::Parameter* alpha_ = nullptr;
};

const Registration<Alphas> alphas_entry(combiners(), "alphas", "learned matrix that mixes head outputs");

}  // namespace
}  // namespace mh::attention
