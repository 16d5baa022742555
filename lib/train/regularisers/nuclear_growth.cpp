// Growth of the nuclear norm of the alphas (head mixing by Landau et al.): the published loss
//
//   γ Σ (|α₀|_* + Δ - |α|_*),  α₀ the present value, detached,
//
// has the gradient -γ U Vᵀ (α = U Σ Vᵀ) and the value γ Δ for each module, whatever α is: Δ trains nothing. The alphas
// rest at the identity until a part of training has passed, and so does the term.
#include "base/error.h"
#include "train/groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class NuclearGrowth : public Regulariser {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_, "γ, per token: the published 40 over the tokens of an update", at_least(0));
    f.field("margin", margin_, "Δ; in the loss's value only", at_least(0));
    f.field("start", start_, "share of training during which the alphas stay frozen", between(0, 1));
  }
  void start(model::ParameterList& parameters) override {
    for (model::Parameter& p : parameters.all())
      if (is_alphas(p)) alphas_.push_back(&p);
    if (alphas_.empty())
      throw Error(Exit::usage,
                  Problem{"train.regularisers.nuclear-growth", "attention.combiner = \"alphas\"", "none", ""});
  }
  at::Tensor loss(const Standing& here) override {
    if (here.fraction() < start_) return {};
    at::Tensor sum;
    for (const model::Parameter* p : alphas_) {
      at::Tensor wide = p->value().to(at::kDouble), u, s, v;
      std::tie(u, s, v) = at::linalg_svd(wide.detach(), false);
      // <U Vᵀ, α> has the wanted gradient in α; at the present α it is the norm itself.
      at::Tensor term = s.sum() + margin_ - (at::matmul(u, v) * wide).sum();
      sum = sum.defined() ? sum + term : term;
    }
    return (sum * weight_).to(at::kFloat);
  }
  bool freezes(const model::Parameter& p, const Standing& here) const override {
    return here.fraction() < start_ && is_alphas(p);
  }

 private:
  static bool is_alphas(const model::Parameter& p) { return matches("*.combiner.alpha", p.name()); }
  double weight_ = 0.01, margin_ = 1e-4, start_ = 0.31;
  std::vector<model::Parameter*> alphas_;
};

struct Entry {
  Entry() {
    regularisers().add("nuclear-growth", "alphas whose nuclear norm grows, frozen at first",
                       [] { return std::make_unique<NuclearGrowth>(); });
  }
} entry;

}  // namespace
}  // namespace mh::train
