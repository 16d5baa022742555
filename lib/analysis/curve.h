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
#include "analysis/importance.h"

namespace mh::analysis {

struct CurveOptions {
  double step = 0.1;       // fraction of the heads that each step masks
  bool per_layer = false;  // masks the fraction in each layer; else among all heads of the model
  bool rerank = false;     // measures importance again after each step, without the masked heads
  bool normalise = false;  // divides the scores of each layer by their l2 norm before ranking
};

struct CurvePoint {
  double fraction = 0;  // fraction of the heads that are masked: 0, step, 2 step, …, 1
  HeadSet masked;       // the masked heads
  task::Score score;
};

// Returns the points of a pruning curve. Importance is measured on the text of `measured`, and the points are scored on
// the text of `scored`; both have the same model, side and kinds. All points are scored by one call of score_without().
// The number of masked heads is rounded to the nearest integer. If a signal asks the process to stop, returns early
// with the points so far.
std::vector<CurvePoint> pruning_curve(const AnalysisInput& scored, const AnalysisInput& measured,
                                      const std::string& measure, const CurveOptions& options);

// The loss of a point compared with the full model.
struct CurveLoss {
  int64_t heads = 0;  // number of masked heads
  double nll = 0;     // nats per token
  double perplexity = 0;
  double difference = 0;        // perplexity minus that of the full model
  double relative = 0;          // `difference` in percent of the full model's perplexity
  double value = 0;             // the metric; perplexity if there is no other metric
  double value_difference = 0;  // `value` minus that of the full model
};

// Compares the points of one curve with the first point, the full model.
class CurveMeter {
 public:
  // `scored`: the argument of pruning_curve(); must outlive the meter. `metric`: evaluates the model, whose heads are
  // masked during the call; empty: perplexity.
  explicit CurveMeter(const AnalysisInput& scored, std::function<double()> metric = {})
      : scored_(scored), metric_(std::move(metric)) {}
  // Call it for the points in order, beginning with the full model.
  CurveLoss loss(const CurvePoint& point);

 private:
  const AnalysisInput& scored_;
  std::function<double()> metric_;
  double full_perplexity_ = 0, full_value_ = 0;
};

}  // namespace mh::analysis
