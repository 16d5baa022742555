// Pruning curves: the loss of a model while growing fractions of its heads are masked, the least important heads first
// (Michel et al. 2019, section 4).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/ablation.h"
#include "analysis/groups.h"
#include "analysis/importance.h"

namespace mh::analysis {

struct CurveOptions {
  double step = 0.1;       // fraction of the heads that each step masks in addition
  bool per_layer = false;  // whether the fraction applies to each layer; false: to the heads of all layers together
  bool rerank = false;     // whether importance is measured again after each step, with the heads masked so far
  bool normalise = false;  // whether the scores of each layer are divided by their l2 norm before ranking
  HeadUnit unit = HeadUnit::head;  // what is ranked and masked: heads, or groups of heads with the sums of their scores
};

struct CurvePoint {
  double fraction =
      0;  // fraction of the heads or groups that are masked, before rounding to whole heads: 0, step, 2 step, …, 1
  HeadSet masked_heads;
  task::NllSum score;  // score of the model with masked_heads masked
};

// Returns the points of a pruning curve. `measure`: name of the importance measure. Importance is measured on the text
// of `importance_input`, and the points are scored on the text of `scoring_input`; the two inputs must have the same
// model, side and kinds. All points are scored by one call of score_ablations(). The number of masked heads or groups
// is rounded to the nearest integer. If a signal asks the process to stop, returns early with the points so far, whose
// scores then cover only a part of the text.
std::vector<CurvePoint> pruning_curve(const AnalysisInput& scoring_input, const AnalysisInput& importance_input,
                                      const std::string& measure, const CurveOptions& options);

// The loss and the metric at a point of a pruning curve, compared with the full model.
struct CurveComparison {
  int64_t num_masked_heads = 0;
  double nll = 0;                      // mean loss per scored target; of a text, cross-entropy in nats per token
  double loss_value = 0;               // the LossValue of CurveComparer
  double loss_difference = 0;          // `loss_value` minus the full model's value
  double loss_percent_difference = 0;  // percent_change() from the full model's value
  double metric_value = 0;             // value of the metric; `loss_value` if CurveComparer has no metric
  double metric_difference = 0;        // `metric_value` minus the full model's value
};

// Compares the points of one curve with the first point, the full model.
class CurveComparer {
 public:
  // `scoring_input`: the same object as for pruning_curve(); must outlive this object. `metric`: returns the metric of
  // scoring_input.model, whose heads are masked during the call; empty: the metric is the value of the loss.
  explicit CurveComparer(const AnalysisInput& scoring_input, std::function<double()> metric = {},
                         LossValue loss_value = LossValue::perplexity)
      : scoring_input_(scoring_input), metric_(std::move(metric)), loss_value_(loss_value) {}
  // Returns the comparison at `point`. Must be called for the points in order, beginning with the full model.
  CurveComparison compare(const CurvePoint& point);

 private:
  const AnalysisInput& scoring_input_;
  std::function<double()> metric_;
  LossValue loss_value_;
  double full_loss_ = 0, full_metric_ = 0;  // `loss_value` and `metric_value` of the full model
};

}  // namespace mh::analysis
