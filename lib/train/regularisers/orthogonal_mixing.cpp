// Orthogonality of mixing matrices (Mixhead, equation of R_orth): Σ over layers |MᵀM - I|_F², where M is
//
//   parameters  the learned matrix: that of Mixhead A, the constant part of Mixhead B
//   positions   the matrix that mixes at each position, averaged over positions; for Mixhead A the same
//
#include "attention/head_mix.h"
#include "train/groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class OrthogonalMixing : public ShownTerm, public attention::Subscriber<attention::MixingObservation> {
 public:
  OrthogonalMixing() : ShownTerm(1e-3) {}
  void describe(Fields& f) override {
    ShownTerm::describe(f);
    f.field("of", of_, "matrices of the term: the learned ones, or for Mixhead B the mixing matrix of each position",
            {"parameters", "positions"});
  }
  void start(nn::ParameterList& parameters, const attention::AttentionConfig&) override {
    matrices_ = find_matching(parameters, "*.mixer.matrix",
                              {"train.regularisers.orthogonal-mixing", "a mixer with a learned matrix", "none",
                               "such as attention.mixer = \"mixhead-a\""});
  }
  attention::Observer* observer() override { return of_ == "positions" ? this : nullptr; }

  void receive(const attention::LayerSpec& layer_spec, attention::MixingObservation& observation) override {
    const at::Tensor& m = observation.matrix;
    if (looks()) add(m.dim() == 2 ? distance(m) : mean_of_positions(layer_spec.kind, distance(m)));
  }
  at::Tensor loss(const TrainProgress& progress) override {
    if (of_ == "parameters")
      for (const nn::Parameter* p : matrices_) add(distance(p->value()));
    return ShownTerm::loss(progress);
  }

 private:
  // (…, h, h) -> |MᵀM - I|_F² (…)
  static at::Tensor distance(const at::Tensor& m) {
    const at::Tensor wide = m.to(at::kFloat);
    return (at::matmul(wide.transpose(-1, -2), wide) - at::eye(m.size(-1), wide.options())).square().sum({-1, -2});
  }
  std::string of_ = "parameters";
  std::vector<nn::Parameter*> matrices_;
};

const Registration<OrthogonalMixing> orthogonal_mixing_entry(regularisers(), "orthogonal-mixing",
                                                             "orthogonality of mixing matrices");

}  // namespace
}  // namespace mh::train
