// Importance by norms of parameters, independent of any text.
//
//   weight-norm  √Σ w² over all weights of the layer that belong to the head. Score heads: query and key projections,
//                rows of mixing matrices, relative positions. Value heads: value projections, columns of mixing
//                matrices and of alphas, gates. Output heads: columns of W^O and rows of alphas. Whole heads: all of
//                these, where a weight that belongs to two sides of the head counts once
//                In a grouped layer, the projections of a key/value head belong to each query head of its group
//   alpha        √Σ w² over the head's weights in matrices across heads only: alphas (rows are output heads, columns
//                value heads) and mixing matrices (rows are score heads, columns value heads). Of a matrix computed
//                from queries, only the constant term is counted
//
// Parameters that layers share belong to no head.
#include <algorithm>
#include <cmath>

#include "analysis/importance.h"
#include "base/error.h"

namespace mh::analysis {
namespace {

using attention::HeadSide;
using nn::HeadAxis;

// Returns, for each head, the sum of x over the head's block along the axis, (axis.heads).
at::Tensor sum_by_head(const at::Tensor& x, const HeadAxis& axis) {
  return x.movedim(axis.axis, 0).reshape({axis.heads, -1}).sum(1);
}

// Returns, for each head, the sum of x over the intersection of its blocks along both axes, (a.heads).
at::Tensor sum_by_head_on_both_axes(const at::Tensor& x, const HeadAxis& a, const HeadAxis& b) {
  const int64_t num_heads = std::min(a.heads, b.heads), block_rows = x.size(a.axis) / a.heads,
                block_columns = x.size(b.axis) / b.heads;
  at::Tensor sums = at::zeros({a.heads}, at::kDouble);
  for (int64_t i = 0; i < num_heads; ++i)
    sums[i] = x.narrow(a.axis, i * block_rows, block_rows).narrow(b.axis, i * block_columns, block_columns).sum();
  return sums;
}

class ParameterNormMeasure : public ImportanceMeasure {
 public:
  explicit ParameterNormMeasure(bool uses_only_mixing_matrices)
      : uses_only_mixing_matrices_(uses_only_mixing_matrices) {}

  std::string why_undefined(model::LanguageModel& model, const attention::AttentionLayer& layer,
                            SideSelection side) const override {
    for (const nn::Parameter& p : model.parameters().all())
      if (!axes_of(p, layer, side).empty()) return "";
    const std::string heads = side == SideSelection::whole ? "heads" : str(name_of(side), " heads");
    return uses_only_mixing_matrices_ ? str("the layer has no matrix across ", heads)
                                      : str("no parameter belongs to ", heads);
  }

  bool reads_masters() const override { return true; }
  bool reads_data() const override { return false; }

  std::map<AttentionKind, LayerScores> compute_scores(const AnalysisInput& input) const override {
    std::map<AttentionKind, LayerScores> scores_by_kind;
    for (const auto* layer : input.model.attention_layers()) {
      const at::Tensor sums = sums_of_squares(input.model.parameters(), *layer, input.side);
      if (!sums.defined()) continue;
      LayerScores& scores = scores_by_kind[layer->layer_spec().kind];
      scores.resize(std::max(scores.size(), static_cast<size_t>(layer->layer_spec().layer) + 1));
      for (int64_t i = 0; i < sums.size(0); ++i)
        scores[static_cast<size_t>(layer->layer_spec().layer)].push_back(std::sqrt(sums[i].item<double>()));
    }
    return scores_by_kind;
  }

 private:
  // Returns the head axes of p that belong to this side, without axes that pruning leaves unchanged. The result is
  // empty if p is not a parameter of the layer, or if uses_only_mixing_matrices_ is set and p is not a matrix that
  // mixes heads.
  std::vector<HeadAxis> axes_of(const nn::Parameter& p, const attention::AttentionLayer& layer,
                                SideSelection side) const {
    if (p.name().rfind(layer.layer_spec().name + ".", 0) != 0) return {};
    std::vector<HeadAxis> axes;  // head axes whose blocks are removed when their heads are pruned
    for (const HeadAxis& axis : p.traits().head_axes)
      if (!axis.survives_pruning) axes.push_back(axis);
    if (!axes.empty() && axes[0].side == HeadSide::key_value) {
      // All other parameters of key/value heads belong to keys: their projection and the weights of their norm.
      const bool is_value = p.name().starts_with(layer.layer_spec().name + ".value.");
      const bool belongs_to_side =
          side == SideSelection::whole || side == (is_value ? SideSelection::value : SideSelection::score);
      return belongs_to_side && !uses_only_mixing_matrices_ ? axes : std::vector<HeadAxis>();
    }
    if (uses_only_mixing_matrices_ && axes.size() < 2) return {};
    const auto sides = sides_in(layer, side);
    if (side != SideSelection::whole)
      axes.erase(std::remove_if(axes.begin(), axes.end(),
                                [&](const HeadAxis& axis) {
                                  return std::find(sides.begin(), sides.end(), axis.side) == sides.end();
                                }),
                 axes.end());
    return axes;
  }

  // Returns the sum of squares of the weights of each head of this side in a layer, (h), (hv) or (ho), fp64; an
  // undefined tensor if no parameter belongs to a head.
  at::Tensor sums_of_squares(const nn::ParameterList& parameters, const attention::AttentionLayer& layer,
                             SideSelection side) const {
    at::Tensor sums;
    for (const nn::Parameter& p : parameters.all()) {
      const auto axes = axes_of(p, layer, side);
      if (axes.empty()) continue;
      const at::Tensor x = p.master().detach().to(at::kCPU, at::kDouble).square();
      at::Tensor sum = sum_by_head(x, axes[0]);
      if (axes[0].side == HeadSide::key_value)
        sum = sum.index_select(0, at::tensor(layer.layer_spec().kv_head_of, at::kLong));
      if (axes.size() > 1) sum = sum + sum_by_head(x, axes[1]) - sum_by_head_on_both_axes(x, axes[0], axes[1]);
      sums = sums.defined() ? sums + sum : sum;
    }
    return sums;
  }

  bool uses_only_mixing_matrices_;  // whether the norm includes only matrices that mix heads
};

struct Alpha : ParameterNormMeasure {
  Alpha() : ParameterNormMeasure(true) {}
};
struct WeightNorm : ParameterNormMeasure {
  WeightNorm() : ParameterNormMeasure(false) {}
};

const Registration<Alpha> alpha_entry(importance_measures(), "alpha",
                                      "Norm of the rows and columns of the head in matrices from heads to heads: "
                                      "alphas and mixing matrices. Refused if a layer has no such matrix.");
const Registration<WeightNorm> weight_norm_entry(importance_measures(), "weight-norm",
                                                 "Norm of all weights of the layer that belong to the head.");

}  // namespace
}  // namespace mh::analysis
