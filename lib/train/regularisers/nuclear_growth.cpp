// The regulariser "nuclear-growth": increases the nuclear norm |α|_* of the alphas, the head mixing matrices of Azov &
// Landau. The published loss is
//
//   γ Σ r (|α₀|_* + Δ - |α|_*),   α₀: current value of α, detached; r: ratio for the layer's kind of attention;
//                                 γ, Δ: options `weight` and `margin`
//
// The sum runs over the layers. For each layer the gradient is -γ r U Vᵀ (α = U Σ Vᵀ), and the value is γ r Δ for any
// α, so Δ has no effect on training. In the first part of training (option `start`) the term is inactive and the alphas
// are frozen at their initial value, the identity matrix unless the weights come from a checkpoint; alphas of a kind
// with r = 0 stay frozen throughout.
#include <algorithm>

#include "analysis/heads.h"
#include "attention/methods/alphas/alphas.h"
#include "base/error.h"
#include "train/parameter_groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class NuclearGrowth : public Regulariser {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_,
            "weight γ of the nuclear-norm term in the mean loss per token; published value: 40 divided by the number "
            "of tokens in an update",
            at_least(0));
    f.field("margin", margin_, "margin Δ: constant in the loss, without effect on gradients", at_least(0));
    f.field("start", start_,
            "fraction of the learning-rate schedule, from the start of training, during which the alphas are frozen",
            between(0, 1));
    for (auto& [kind, ratio] : ratios_) f.section(name_of(kind), ratio);
  }
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) override {
    alphas_ = find_parameters(parameters, str("*", attention::kAlphaName),
                              {"train.regularisers.nuclear-growth", "attention.combiner = \"alphas\"",
                               attention.combiners_text(), "set attention.combiner, or remove the regulariser"});
    for (const auto& [kind, ratio] : ratios_) {
      const bool has_alpha = std::any_of(alphas_.begin(), alphas_.end(), [kind = kind](const nn::Parameter* p) {
        const auto layer = analysis::layer_of(p->name());
        return layer && layer->kind == kind;
      });
      const std::string key = str("train.regularisers.nuclear-growth.", name_of(kind), ".ratio");
      if (!has_alpha && ratio.ratio != Ratio().ratio)
        refuse_usage(key, "a kind of attention whose layers have alphas", "no alphas in layers of this kind",
                     str("leave ", key, " out"));
    }
  }
  at::Tensor loss(const TrainProgress& progress) override {
    if (progress.fraction() < start_) return {};
    at::Tensor sum;
    for (const nn::Parameter* p : alphas_) {
      const double r = ratio_of(*p);
      if (r == 0) continue;
      at::Tensor alpha = p->value().to(at::kDouble), u, s, vt;
      std::tie(u, s, vt) = at::linalg_svd(alpha.detach(), false);
      // <U Vᵀ, α> has the gradient U Vᵀ with respect to α, and its value is the nuclear norm of α.
      const at::Tensor term = r * (s.sum() + margin_ - (at::matmul(u, vt) * alpha).sum());
      sum = sum.defined() ? sum + term : term;
    }
    return sum.defined() ? (sum * weight_).to(at::kFloat) : sum;
  }
  bool freezes(const nn::Parameter& p, const TrainProgress& progress) const override {
    return p.name().ends_with(attention::kAlphaName) && (progress.fraction() < start_ || ratio_of(p) == 0);
  }
  bool depends_on_fraction() const override { return start_ > 0; }

 private:
  struct Ratio {
    double ratio = 1;
    void describe(Fields& f) {
      f.field("ratio", ratio,
              "ratio r: factor on the weight γ of the nuclear-norm term in the layers of one kind of attention; 0: no "
              "term for this kind of attention, and its alphas stay frozen at their initial values",
              at_least(0));
    }
  };
  double ratio_of(const nn::Parameter& p) const {
    const auto layer = analysis::layer_of(p.name());
    return layer ? ratios_.at(layer->kind).ratio : 1;
  }
  double weight_ = 0.01, margin_ = 1e-4, start_ = 0.31;
  std::map<attention::AttentionKind, Ratio> ratios_{{attention::AttentionKind::encoder_self, {}},
                                                    {attention::AttentionKind::decoder_self, {}},
                                                    {attention::AttentionKind::decoder_cross, {}}};
  std::vector<nn::Parameter*> alphas_;
};

const Registration<NuclearGrowth> nuclear_growth_entry(
    regularisers(), "nuclear-growth",
    "reward for growth of the nuclear norm of alphas, the matrices that mix head outputs; the alphas stay frozen "
    "during "
    "a first part of training (train.regularisers.nuclear-growth.start) and are trained after it");

}  // namespace
}  // namespace mh::train
