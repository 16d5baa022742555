// Runs a model over a corpus for an observer.
#include "analysis/analysis_input.h"

#include <c10/core/GradMode.h>

namespace mh::analysis {

void observe(const AnalysisInput& subject, attention::Observer& observer) {
  c10::NoGradGuard no_gradient;
  data::BatchVisitor visitor;
  visitor.observer = &observer;
  visitor.visit = [](const data::VisitedBatch&) {};
  visitor.progress = subject.progress;
  data::for_each_batch(subject.model, subject.text, subject.how, visitor);
}

}  // namespace mh::analysis
