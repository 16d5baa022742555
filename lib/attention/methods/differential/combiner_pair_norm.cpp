// Normalisation of differential attention (differential.h): z (2 dv), the concatenated outputs of heads 2i and 2i + 1,
// becomes (1 - λ_init) w ⊙ z / √(mean(z²) + ε). All pairs of a layer share the weight w (2 dv), which is 1 at the
// start.
#include "attention/methods/differential/differential.h"
#include "attention/stage.h"
#include "base/error.h"

namespace mh::attention {
namespace {

constexpr double kEpsilon = 1e-5;

class PairNorm : public Combiner {
 public:
  explicit PairNorm(const LayerSpec& layer_spec) {
    if (layer_spec.value_heads % 2 != 0)
      refuse_usage(layer_spec.name + ", combiner 'pair-norm'", "an even number of value heads, since heads form pairs",
                   str(layer_spec.value_heads), "choose an even number of heads, or another combiner");
  }
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    require_whole_pairs(remaining_heads.value, layer_spec, "combiner 'pair-norm'");
    return nullptr;
  }
  std::shared_ptr<StageOptions> options_after_padding(const LayerSpec& layer_spec) const override {
    refuse_usage(layer_spec.name + ", combiner 'pair-norm'",
                 "a layer whose results do not change if zeros are appended to head outputs",
                 "a norm over the head outputs of a pair, whose mean square depends on the number of elements",
                 "do not change the head size of models with the combiner pair-norm");
  }
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    scale_ = 1 - lambda_init(layer_spec.layer);
    weight_ = &parameters.add(layer_spec.name + ".combiner.norm.weight", {2 * layer_spec.value_size},
                              {nn::Init::constant(1), false, false});
  }
  at::Tensor combine(const Context&, const at::Tensor& z) override {
    const int64_t batch_size = z.size(0), num_heads = z.size(1), length = z.size(2), size = z.size(3);
    // (B, Tq, hv / 2, 2 dv)
    at::Tensor pairs = z.transpose(1, 2).reshape({batch_size, length, num_heads / 2, 2 * size});
    const at::Tensor fp32_pairs = pairs.to(at::kFloat);
    const at::Tensor normed_pairs =
        fp32_pairs * at::rsqrt(fp32_pairs.square().mean(-1, true) + kEpsilon) * (weight_->value() * scale_);
    return normed_pairs.to(z.scalar_type()).view({batch_size, length, num_heads, size}).transpose(1, 2);
  }
  std::string why_not_fused() const override { return ""; }

 private:
  double scale_ = 1;
  nn::Parameter* weight_ = nullptr;
};

const Registration<PairNorm> pair_norm_entry(
    combiners(), "pair-norm", "RMS norm of each pair of head outputs, for use with the mixer differential");

}  // namespace
}  // namespace mh::attention
