// The regulariser "subspace-overlap" (Mixhead, equation 20): the overlap of the subspaces that the attention matrices
// P_i (Tq, Tk) of two heads span, summed over pairs of heads i < j. The option `subspace` selects the subspaces:
//
//   rows     R_d = Σ_i<j |P_i P_jᵀ|_F²      columns  R_c = Σ_i<j |P_iᵀ P_j|_F²
//
// The term is divided by the number of pairs of heads and by Tq (rows) or Tk (columns), averaged over the rows of the
// batch, and summed over layers. The loss of the paper contains R_d and R_c; a configuration with both terms has two
// sections, at least one of which has the key `type`.
#include "train/regulariser.h"

namespace mh::train {
namespace {

class SubspaceOverlap : public ObservedTerm {
 public:
  SubspaceOverlap() : ObservedTerm(0.01, "subspace-overlap penalty") {}
  void describe(Fields& f) override {
    ObservedTerm::describe(f);
    f.field("subspace", subspace_,
            "subspaces compared: those spanned by the rows or by the columns of the attention matrices",
            {"rows", "columns"});
  }

  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    const int64_t h = p.size(1);
    if (!is_training_pass() || h < 2) return;
    const at::Tensor masked_p = p * query_mask(layer_spec.kind, p, p.size(2)).unsqueeze(1).unsqueeze(-1);
    const at::Tensor x = subspace_ == "rows" ? masked_p : masked_p.transpose(-1, -2);
    // |P_i P_jᵀ|_F² = tr(G_i G_j) with the Gram matrix G = PᵀP, so the sum over pairs computes each G_i only once.
    const at::Tensor gram = at::matmul(x.transpose(-1, -2), x);  // rows: (B, hv, Tk, Tk), columns: (B, hv, Tq, Tq)
    const at::Tensor all_pairs = gram.sum(1).square().sum({-1, -2}), same_head_pairs = gram.square().sum({-1, -2, -3});
    const at::Tensor lengths = query_lengths(layer_spec.kind, p, p.size(2));
    // (B): number of queries (rows) or keys (columns) without padding. In self-attention, queries and keys have the
    // same padding at the end; the additional Tk - Tq keys are memory.
    const at::Tensor num_positions = subspace_ == "rows" ? lengths
                                     : layer_spec.kind == attention::AttentionKind::decoder_cross
                                         ? key_lengths(layer_spec.kind, p, p.size(3))
                                         : lengths + static_cast<double>(p.size(3) - p.size(2));
    add(mean_over_nonempty_rows(
        (all_pairs - same_head_pairs) / (num_positions.clamp_min(1) * static_cast<double>(h * (h - 1))), lengths));
  }

 private:
  std::string subspace_ = "rows";
};

const Registration<SubspaceOverlap> subspace_overlap_entry(
    regularisers(), "subspace-overlap",
    "penalty on the overlap of the subspaces that the attention matrices of heads span");

}  // namespace
}  // namespace mh::train
