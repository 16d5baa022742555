// Chooses the heads that each point of a pruning curve masks, and scores the points.
#include "analysis/curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/signals.h"

namespace mh::analysis {

namespace {

// Returns `fraction` of the number `heads`, rounded to the nearest integer.
int64_t round_fraction(double fraction, int64_t heads) { return std::llround(fraction * static_cast<double>(heads)); }

// Adds heads to `masked` in the order of the ranking `order`, until `masked` has `fraction` of the heads in `all` or,
// if `per_layer`, of the heads of each layer.
void mask_by_rank(HeadSet& masked, const std::vector<RankedHead>& order, const HeadSet& all, double fraction,
                  bool per_layer) {
  // The number of heads still to be added, and the total number of heads: by layer, or for all layers under a single
  // key.
  std::map<std::pair<AttentionKind, int64_t>, int64_t> remaining, sizes;
  const auto key = [&](AttentionKind kind, const Head& head) {
    return per_layer ? std::pair(kind, head.layer) : std::pair(AttentionKind{}, int64_t{-1});
  };
  for (const auto& [kind, heads] : all)
    for (const Head& head : heads) ++sizes[key(kind, head)];
  for (const auto& [place, size] : sizes) remaining[place] = round_fraction(fraction, size);
  for (const auto& [kind, heads] : masked)
    for (const Head& head : heads) --remaining[key(kind, head)];
  for (const RankedHead& r : order)
    if (int64_t& more = remaining[key(r.kind, r.head)]; more > 0 && masked[r.kind].insert(r.head).second) --more;
}

}  // namespace

std::vector<CurvePoint> pruning_curve(const AnalysisInput& scored, const AnalysisInput& measured,
                                      const std::string& measure, const CurveOptions& options) {
  const HeadSet all = all_heads(scored.model, scored.side, scored.kinds);
  const auto steps = static_cast<int64_t>(std::ceil(1 / options.step - 1e-9));
  std::vector<CurvePoint> points;
  HeadSet masked;
  std::vector<RankedHead> order;
  for (int64_t i = 0; i <= steps && stop_signal() == 0; ++i) {
    // Rounded to 9 decimals, so that 3 steps of 0.1 give 0.3 and not 0.30000000000000004.
    const double fraction = std::min(1.0, std::round(static_cast<double>(i) * options.step * 1e9) / 1e9);
    if (i == 1 || (i > 1 && options.rerank)) {
      const HeadMaskGuard masking(measured.model, measured.side, masked);
      auto scores = importance_of(measure, measured);
      if (options.normalise)
        for (auto& [kind, layers] : scores) normalise_by_layer(layers);
      order = ranked(scores, options.per_layer);
    }
    mask_by_rank(masked, order, all, fraction, options.per_layer);
    points.push_back({fraction, masked, {}});
  }
  std::vector<HeadSet> without;
  without.reserve(points.size());
  for (const CurvePoint& point : points) without.push_back(point.masked);
  const auto scores = score_without(scored, without);
  for (size_t i = 0; i < points.size(); ++i) points[i].score = scores[i];
  return points;
}

CurveLoss CurveMeter::loss(const CurvePoint& point) {
  CurveLoss loss;
  for (const auto& [kind, heads] : point.masked) loss.heads += static_cast<int64_t>(heads.size());
  loss.nll = nll_per_token(point.score);
  loss.perplexity = loss.value = std::exp(loss.nll);
  if (metric_) {
    const HeadMaskGuard masking(scored_.model, scored_.side, point.masked);
    loss.value = metric_();
  }
  if (point.fraction == 0) full_perplexity_ = loss.perplexity, full_value_ = loss.value;
  loss.difference = loss.perplexity - full_perplexity_;
  loss.relative = 100 * (loss.perplexity / full_perplexity_ - 1);
  loss.value_difference = loss.value - full_value_;
  return loss;
}

}  // namespace mh::analysis
