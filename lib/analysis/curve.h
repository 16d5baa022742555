// What a model loses as its heads go, the least important first (Michel et al. 2019, section 4).
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
  double step = 0.1;       // part of the heads that go in each step
  bool per_layer = false;  // of each layer as many; else of all together
  bool rerank = false;     // measure again after each step, without the heads that are gone
  bool normalise = false;  // scores of each layer by their l2 norm, before they are ranked
};

struct CurvePoint {
  double fraction = 0;  // of the heads: 0, step, 2 step, …, 1
  HeadSet gone;
  task::Score score;
};

// `scored` and `measured` are the same model with the same side and kinds, and may be other texts. Without `rerank` all
// points are scored in one pass. A step takes the nearest whole number of heads. Ends early, with what it has, where a
// signal asks the process to stop.
std::vector<CurvePoint> pruning_curve(const Subject& scored, const Subject& measured, const std::string& measure,
                                      const CurveOptions& options);

// What the model without the heads of a point loses against the whole model.
struct CurveLoss {
  int64_t heads = 0;  // that are masked
  double nll = 0;     // nats per token
  double perplexity = 0;
  double difference = 0;        // of perplexities
  double relative = 0;          // the same in percent of the whole model's perplexity
  double value = 0;             // of the metric; perplexity where there is no other
  double value_difference = 0;  // of the metric
};

// Compares the points of one curve with its first, which is the whole model.
class CurveMeter {
 public:
  // `scored`: as pruning_curve() has it; must outlive this. `metric`: runs the model, whose heads are masked
  // meanwhile; none: perplexity.
  explicit CurveMeter(const Subject& scored, std::function<double()> metric = {})
      : scored_(scored), metric_(std::move(metric)) {}
  // Points in their order.
  CurveLoss loss(const CurvePoint& point);

 private:
  const Subject& scored_;
  std::function<double()> metric_;
  double full_perplexity_ = 0, full_value_ = 0;
};

}  // namespace mh::analysis
