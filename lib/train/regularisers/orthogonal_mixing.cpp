// Mixing matrices that stay orthogonal (Mixhead, equation of R_orth): Σ over layers |MᵀM - I|_F², where M is the matrix
// of Mixhead A, or the constant part of Mixhead B.
#include "base/error.h"
#include "train/groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class OrthogonalMixing : public Regulariser {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_, "of the term, added to the loss per token", at_least(0));
  }
  void start(model::ParameterList& parameters) override {
    for (model::Parameter& p : parameters.all())
      if (p.traits().trainable && matches("*.mixer.matrix", p.name())) matrices_.push_back(&p);
    if (matrices_.empty())
      throw Error(Exit::usage, Problem{"train.regularisers.orthogonal-mixing", "a mixer with a learned matrix", "none",
                                       "such as attention.mixer = \"mixhead-a\""});
  }
  at::Tensor loss(const Standing&) override {
    at::Tensor sum;
    for (const model::Parameter* p : matrices_) {
      const at::Tensor& m = p->value();
      at::Tensor wide = m.to(at::kFloat);
      at::Tensor term = (at::matmul(wide.t(), wide) - at::eye(m.size(1), wide.options())).square().sum();
      sum = sum.defined() ? sum + term : term;
    }
    return sum * weight_;
  }

 private:
  double weight_ = 1e-3;
  std::vector<model::Parameter*> matrices_;
};

struct Entry {
  Entry() {
    regularisers().add("orthogonal-mixing", "mixing matrices near orthogonal ones",
                       [] { return std::make_unique<OrthogonalMixing>(); });
  }
} entry;

}  // namespace
}  // namespace mh::train
