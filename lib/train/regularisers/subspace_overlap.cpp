// The overlap of the spaces that two heads' attention matrices span (Mixhead, equation 20):
//
//   rows     R_d = Σ_i<j |P_i P_jᵀ|_F²      columns  R_c = Σ_i<j |P_iᵀ P_j|_F²
//
// a mean over the rows of the batch, divided by the number of pairs and by Tq (Tk), summed over layers. The paper has
// both in one loss, which takes a section for each, of which one at least names its type.
#include "train/regulariser.h"

namespace mh::train {
namespace {

class SubspaceOverlap : public ShownTerm {
 public:
  SubspaceOverlap() : ShownTerm(0.01) {}
  void describe(Fields& f) override {
    ShownTerm::describe(f);
    f.field("of", of_, "spaces spanned by rows or by columns of the probabilities", {"rows", "columns"});
  }

  void probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    const int64_t h = p.size(1);
    if (!looks() || h < 2) return;
    const at::Tensor known = p * real(layer_spec.kind, p, p.size(2)).unsqueeze(1).unsqueeze(-1);
    const at::Tensor x = of_ == "rows" ? known : known.transpose(-1, -2);
    // |P_i P_jᵀ|_F² = tr(G_i G_j) with G = PᵀP, so the sum over pairs needs each Gram matrix once.
    const at::Tensor gram = at::matmul(x.transpose(-1, -2), x);  // (B, h, n, n)
    const at::Tensor all = gram.sum(1).square().sum({-1, -2}), own = gram.square().sum({-1, -2, -3});
    const at::Tensor rows = queries(layer_spec.kind, p, p.size(2));
    // In self-attention, padding after the end of a row is padding of its keys, too, whatever memory precedes them.
    const at::Tensor n = of_ == "rows" ? rows
                         : layer_spec.kind == attention::AttentionKind::decoder_cross
                             ? keys(layer_spec.kind, p, p.size(3))
                             : rows + static_cast<double>(p.size(3) - p.size(2));
    add(mean_of_rows((all - own) / (n.clamp_min(1) * static_cast<double>(h * (h - 1))), rows));
  }

 private:
  std::string of_ = "rows";
};

const Registration<SubspaceOverlap> subspace_overlap_entry(regularisers(), "subspace-overlap",
                                                           "small overlap between the subspaces of heads");

}  // namespace
}  // namespace mh::train
