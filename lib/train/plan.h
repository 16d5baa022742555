// Computes the Plan of a run, the argument of Procedure::plan().
#pragma once

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace mh::train {

// Returns the plan of a run. `run` and `batches` must outlive the plan. `validates`: whether the run has a validation
// set. `state`: the training state from which a run resumes; default for a new run.
Plan plan_of(const RunConfig& run, const Batches& batches, bool validates, const TrainState& state = {});

}  // namespace mh::train
