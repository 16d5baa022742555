// Chooses the heads that each point of a pruning curve masks, and scores the points.
#include "analysis/curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/percent_change.h"
#include "base/signals.h"

namespace mh::analysis {

namespace {

int64_t num_heads_of_fraction(double fraction, int64_t num_heads) {
  return std::llround(fraction * static_cast<double>(num_heads));
}

// Adds heads, or groups of heads, to `masked_heads` in the order of `ranked_heads`, until the fraction `fraction` of
// `candidates` is masked; if `per_layer`, until this fraction of each layer is masked.
void mask_by_rank(HeadSet& masked_heads, const std::vector<RankedHead>& ranked_heads, const HeadSet& candidates,
                  double fraction, bool per_layer) {
  // Numbers of heads still to be masked, and numbers of candidates: by layer, or for all layers under a single key.
  std::map<std::pair<AttentionKind, int64_t>, int64_t> num_remaining, num_candidates;
  const auto key = [&](AttentionKind kind, const Head& head) {
    return per_layer ? std::pair(kind, head.layer) : std::pair(AttentionKind{}, int64_t{-1});
  };
  for (const auto& [kind, heads] : candidates)
    for (const Head& head : heads) ++num_candidates[key(kind, head)];
  for (const auto& [layer_key, num_heads] : num_candidates)
    num_remaining[layer_key] = num_heads_of_fraction(fraction, num_heads);
  for (const auto& [kind, heads] : masked_heads)
    for (const Head& head : heads) --num_remaining[key(kind, head)];
  for (const RankedHead& r : ranked_heads)
    if (int64_t& num_remaining_heads = num_remaining[key(r.kind, r.head)];
        num_remaining_heads > 0 && masked_heads[r.kind].insert(r.head).second)
      --num_remaining_heads;
}

}  // namespace

std::vector<CurvePoint> pruning_curve(const AnalysisInput& scoring_input, const AnalysisInput& importance_input,
                                      const std::string& measure, const CurveOptions& options) {
  const bool has_groups = options.unit == HeadUnit::group;
  const HeadSet candidates = has_groups ? all_groups(scoring_input.model, scoring_input.kinds)
                                        : all_heads(scoring_input.model, scoring_input.side, scoring_input.kinds);
  const auto num_steps = static_cast<int64_t>(std::ceil(1 / options.step - 1e-9));
  std::vector<CurvePoint> points;
  HeadSet masked_units;  // heads or groups
  const auto masked_heads = [&] {
    return has_groups ? heads_of_groups(scoring_input.model, masked_units, "--unit") : masked_units;
  };
  std::vector<RankedHead> ranked_units;
  for (int64_t i = 0; i <= num_steps && stop_signal() == 0; ++i) {
    // The fraction is rounded to 9 decimals, so that 3 steps of 0.1 give 0.3 and not 0.30000000000000004.
    const double fraction = std::min(1.0, std::round(static_cast<double>(i) * options.step * 1e9) / 1e9);
    if (i == 1 || (i > 1 && options.rerank)) {
      const HeadMaskGuard mask_guard(importance_input.model, importance_input.side, masked_heads());
      auto scores = importance_of(measure, importance_input);
      if (has_groups) scores = sum_by_group(importance_input.model, scores);
      if (options.normalise)
        for (auto& [kind, layers] : scores) normalise_by_layer(layers);
      ranked_units = rank_heads(scores, options.per_layer);
    }
    mask_by_rank(masked_units, ranked_units, candidates, fraction, options.per_layer);
    points.push_back({fraction, masked_heads(), {}});
  }
  std::vector<HeadSet> masked_sets;
  masked_sets.reserve(points.size());
  for (const CurvePoint& point : points) masked_sets.push_back(point.masked_heads);
  const auto scores = score_ablations(scoring_input, masked_sets);
  for (size_t i = 0; i < points.size(); ++i) points[i].score = scores[i];
  return points;
}

CurveComparison CurveComparer::compare(const CurvePoint& point) {
  CurveComparison comparison;
  for (const auto& [kind, heads] : point.masked_heads)
    comparison.num_masked_heads += static_cast<int64_t>(heads.size());
  comparison.nll = nll_per_token(point.score);
  comparison.loss_value = comparison.metric_value = value_of(loss_value_, point.score);
  if (metric_) {
    const HeadMaskGuard mask_guard(scoring_input_.model, scoring_input_.side, point.masked_heads);
    comparison.metric_value = metric_();
  }
  if (point.fraction == 0) full_loss_ = comparison.loss_value, full_metric_ = comparison.metric_value;
  comparison.loss_difference = comparison.loss_value - full_loss_;
  comparison.loss_percent_difference = percent_change(comparison.loss_value, full_loss_);
  comparison.metric_difference = comparison.metric_value - full_metric_;
  return comparison;
}

}  // namespace mh::analysis
