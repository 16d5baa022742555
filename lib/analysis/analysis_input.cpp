// Runs a model over a corpus while an observer reads each forward pass.
#include "analysis/analysis_input.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace mh::analysis {

void run_with_observer(const AnalysisInput& input, attention::Observer& observer) {
  c10::NoGradGuard no_gradient;
  data::BatchVisitor visitor;
  visitor.observer = &observer;
  visitor.visit = [](const data::ForwardedBatch&) {};
  visitor.on_progress = input.progress;
  data::for_each_batch(input.model, input.corpus, input.scoring_options, visitor);
}

void run_with_observer(const AnalysisInput& input, AdditiveObserver& observer) {
  c10::NoGradGuard no_gradient;
  data::BatchVisitor visitor;
  visitor.observer = &observer;
  visitor.on_progress = input.progress;
  share_contributions(visitor, observer, input.group);
  data::for_each_batch(input.model, input.corpus, input.scoring_options, visitor);
  observer.end_recording();
}

void share_contributions(data::BatchVisitor& visitor, AdditiveObserver& observer, const distributed::Group* group,
                         std::function<void(const data::ForwardedBatch&)> finish_pass) {
  visitor.group = group;
  observer.begin_recording();
  visitor.compute = [&observer, finish_pass = std::move(finish_pass)](const data::ForwardedBatch& pass) {
    if (finish_pass) finish_pass(pass);
    return observer.take_recorded();
  };
  visitor.add = [&observer](const data::MiniBatch&, const distributed::OrderedWork::Results& recorded_results) {
    observer.add_recorded(recorded_results);
  };
}

}  // namespace mh::analysis
