// The regulariser "disagreement" (Li et al. 2018): penalises pairs of heads (i, j) that attend to the same positions or
// have similar outputs. P_i (Tq, Tk): attention probabilities after the mixer; Z_i (Tq dv): head output, flattened over
// queries; s: index of a key.
//
//   positions  1/hv² Σ_ij Σ_s P_i ⊙ P_j, averaged over all queries
//   outputs    1/hv² Σ_ij (1 + cos(Z_i, Z_j)), averaged over rows
//
// The term is summed over layers. The term decreases as heads disagree more, and is added to the loss with a positive
// sign.
#include "train/regulariser.h"

namespace mh::train {
namespace {

class Disagreement : public ObservedTerm {
 public:
  Disagreement() : ObservedTerm(0.01, "disagreement penalty") {}
  void describe(Fields& f) override {
    ObservedTerm::describe(f);
    f.field("property", property_, "property in which the term makes heads differ: head outputs or attended positions",
            {"outputs", "positions"});
  }

  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    if (property_ != "positions" || !is_training_pass()) return;
    // Σ_ij P_i ⊙ P_j = (Σ_i P_i)²
    const auto h = static_cast<double>(p.size(1));
    add(mean_over_queries(layer_spec.kind, p.sum(1).square().sum(-1)) / (h * h));
  }
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& z) override {
    if (side != attention::HeadSide::value || property_ != "outputs" || !is_training_pass()) return z;
    const at::Tensor mask = query_mask(layer_spec.kind, z, z.size(2)).unsqueeze(1).unsqueeze(-1);  // (B, 1, Tq, 1)
    at::Tensor flat_outputs = (z * mask).flatten(2).to(at::kFloat);                                // (B, hv, Tq dv)
    flat_outputs = flat_outputs / flat_outputs.norm(2, -1, true).clamp_min(1e-12);
    // Σ_ij cos_ij = |Σ_i z_i/|z_i||²
    const auto h = static_cast<double>(z.size(1));
    add(mean_over_nonempty_rows(1 + flat_outputs.sum(1).square().sum(-1) / (h * h),
                                query_lengths(layer_spec.kind, z, z.size(2))));
    return z;
  }

 private:
  std::string property_ = "outputs";
};

const Registration<Disagreement> disagreement_entry(regularisers(), "disagreement",
                                                    "penalty on heads with similar attention or similar outputs");

}  // namespace
}  // namespace mh::train
