// The overlap of what two heads' attention matrices span (Mixhead, section on ranks):
//
//   rows     R_d = Σ_i<j |P_i P_jᵀ|_F²      columns  R_c = Σ_i<j |P_iᵀ P_j|_F²
//
// a mean over the rows of the batch, divided by the number of pairs and by Tq (Tk), summed over layers.
#include <c10/core/GradMode.h>

#include "train/regulariser.h"

namespace mh::train {
namespace {

class SubspaceOverlap : public Regulariser, public attention::Observer {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_, "of the term, added to the loss per token", at_least(0));
    f.field("of", of_, "spaces spanned by rows or by columns of the probabilities", {"rows", "columns"});
  }
  void start(model::ParameterList&) override {}
  attention::Observer* observer() override { return this; }

  void probabilities(const attention::Shape&, const at::Tensor& p) override {
    if (!c10::GradMode::is_enabled()) return;
    const int64_t h = p.size(1);
    if (h < 2) return;
    at::Tensor x = of_ == "rows" ? p : p.transpose(-1, -2);
    at::Tensor term;
    // |P_i P_jᵀ|_F² = tr(G_i G_j) with G = PᵀP, so the sum over pairs needs each Gram matrix once.
    at::Tensor gram = at::matmul(x.transpose(-1, -2), x);  // (B, h, n, n)
    at::Tensor all = gram.sum(1).square().sum({-1, -2}), own = gram.square().sum({-1, -2, -3});
    term = (all - own).mean() / static_cast<double>(h * (h - 1) * x.size(-2));
    sum_ = sum_.defined() ? sum_ + term : term;
  }
  at::Tensor loss(const Standing&) override {
    at::Tensor sum = std::move(sum_);
    sum_ = at::Tensor();
    return sum.defined() ? sum * weight_ : sum;
  }

 private:
  double weight_ = 0.01;
  std::string of_ = "rows";
  at::Tensor sum_;
};

struct Entry {
  Entry() {
    regularisers().add("subspace-overlap", "heads whose attention spans different spaces",
                       [] { return std::make_unique<SubspaceOverlap>(); });
  }
} entry;

}  // namespace
}  // namespace mh::train
