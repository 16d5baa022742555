// What a model loses as its heads go, the least important first (Michel et al. 2019, section 4).
#pragma once

#include <cstdint>
#include <map>
#include <string>
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

}  // namespace mh::analysis
