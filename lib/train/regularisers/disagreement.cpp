// Heads that differ (Li et al. 2018), in where they look or in what they say:
//
//   positions  1/h² Σ_ij Σ_t,s P_i ⊙ P_j, a mean over rows and queries (lower: heads look at different places)
//   outputs    1/h² Σ_ij (1 + cos(Z_i, Z_j)), a mean over rows; Z_i flattened over queries
//
// summed over layers. Both fall as heads disagree, so they are added to the loss.
#include <c10/core/GradMode.h>

#include "train/regulariser.h"

namespace mh::train {
namespace {

class Disagreement : public Regulariser, public attention::Observer {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_, "of the term, added to the loss per token", at_least(0));
    f.field("of", of_, "what heads should differ in", {"outputs", "positions"});
  }
  void start(model::ParameterList&) override {}
  attention::Observer* observer() override { return this; }

  void probabilities(const attention::Shape&, const at::Tensor& p) override {
    if (of_ != "positions" || !c10::GradMode::is_enabled()) return;
    // Σ_ij P_i ⊙ P_j = (Σ_i P_i)²
    const auto h = static_cast<double>(p.size(1));
    add(p.sum(1).square().sum(-1).mean() / (h * h));
  }
  at::Tensor head_outputs(const attention::Shape&, const at::Tensor& z) override {
    if (of_ != "outputs" || !c10::GradMode::is_enabled()) return z;
    at::Tensor flat = z.flatten(2).to(at::kFloat);  // (B, h, Tq dv)
    flat = flat / flat.norm(2, -1, true).clamp_min(1e-12);
    // Σ_ij cos_ij = |Σ_i z_i/|z_i||²
    const auto h = static_cast<double>(z.size(1));
    add(1 + flat.sum(1).square().sum(-1).mean() / (h * h));
    return z;
  }
  at::Tensor loss(const Standing&) override {
    at::Tensor sum = std::move(sum_);
    sum_ = at::Tensor();
    return sum.defined() ? sum * weight_ : sum;
  }

 private:
  void add(const at::Tensor& term) { sum_ = sum_.defined() ? sum_ + term : term; }
  double weight_ = 0.01;
  std::string of_ = "outputs";
  at::Tensor sum_;
};

struct Entry {
  Entry() {
    regularisers().add("disagreement", "heads that look elsewhere or say something else",
                       [] { return std::make_unique<Disagreement>(); });
  }
} entry;

}  // namespace
}  // namespace mh::train
