// The regulariser "orthogonal-mixing" (Mixhead, equation of R_orth): |MᵀM - I|_F² for the mixing matrix M (h, hv) of a
// layer, summed over layers. The term is 0 if the columns of every M are orthonormal. The option `matrix_source`
// selects M:
//
//   parameters  the learned matrix of Mixhead A, the learned matrix by which talking heads mix probabilities, or the
//               constant part of the matrix of Mixhead B
//   positions   the mixing matrix at each position, with the term averaged over positions; equal to `parameters` for
//               mixers whose matrix does not depend on the position
#include "attention/head_mix.h"
#include "train/parameter_groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class OrthogonalMixing : public ObservedTerm, public attention::Subscriber<attention::MixingObservation> {
 public:
  OrthogonalMixing() : ObservedTerm(1e-3, "orthogonality penalty on mixing matrices") {}
  void describe(Fields& f) override {
    ObservedTerm::describe(f);
    f.field("matrix_source", matrix_source_,
            "source of the matrices that the term makes orthogonal; parameters: the learned matrix; positions: the "
            "mixing matrix at each position, which differs from the learned matrix only for the mixer mixhead-b",
            {"parameters", "positions"});
  }
  void start(nn::ParameterList& parameters, const attention::AttentionConfig&) override {
    matrices_ = find_parameters(
        parameters, str("*", attention::kMixingMatrixName),
        {"train.regularisers.orthogonal-mixing", "a mixer with a learned matrix", "no learned matrix of a mixer",
         "set attention.mixer, for example to \"mixhead-a\", or remove the regulariser"});
  }
  attention::Observer* observer() override { return matrix_source_ == "positions" ? this : nullptr; }

  void receive(const attention::LayerSpec& layer_spec, attention::MixingObservation& observation) override {
    const at::Tensor& m = observation.matrix;
    if (is_training_pass())
      add(m.dim() == 2 ? squared_distance(m) : mean_over_queries(layer_spec.kind, squared_distance(m)));
  }
  at::Tensor loss(const TrainProgress& progress) override {
    if (matrix_source_ == "parameters")
      for (const nn::Parameter* p : matrices_) add(squared_distance(p->value()));
    return ObservedTerm::loss(progress);
  }

 private:
  // Returns |MᵀM - I|_F², shape (…), for m of shape (…, h, hv).
  static at::Tensor squared_distance(const at::Tensor& m) {
    const at::Tensor m_fp32 = m.to(at::kFloat);
    return (at::matmul(m_fp32.transpose(-1, -2), m_fp32) - at::eye(m.size(-1), m_fp32.options()))
        .square()
        .sum({-1, -2});
  }
  std::string matrix_source_ = "parameters";
  std::vector<nn::Parameter*> matrices_;
};

const Registration<OrthogonalMixing> orthogonal_mixing_entry(regularisers(), "orthogonal-mixing",
                                                             "penalty on mixing matrices that are not orthogonal");

}  // namespace
}  // namespace mh::train
