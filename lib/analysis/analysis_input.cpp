// Runs a model over a corpus while an observer reads each forward pass.
#include "analysis/analysis_input.h"

#include <c10/core/GradMode.h>

namespace mh::analysis {

void run_with_observer(const AnalysisInput& input, attention::Observer& observer) {
  c10::NoGradGuard no_gradient;
  data::BatchVisitor visitor;
  visitor.observer = &observer;
  visitor.visit = [](const data::ForwardedBatch&) {};
  visitor.on_progress = input.progress;
  data::for_each_batch(input.model, input.corpus, input.scoring_options, visitor);
}

}  // namespace mh::analysis
