// The facts about a run that procedures plan with (Procedure::plan).
#pragma once

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace mh::train {

// Returns the plan of a run, valid as long as `run` and `batches`. `validates`: the run has a validation set. `state`:
// where a resume continues.
Plan plan_of(const RunConfig& run, const Batches& batches, bool validates, const TrainState& state = {});

}  // namespace mh::train
