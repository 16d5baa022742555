// Computes the RunProperties of a run, the argument of Procedure::set_run_properties().
#pragma once

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace mh::train {

// Returns the properties of a run. `run` and `batches` must outlive the properties. `has_validation_set`: whether the
// run has a validation set. `state`: the training state from which a run resumes; default for a new run.
RunProperties run_properties_of(const RunConfig& run, const Batches& batches, bool has_validation_set,
                                const TrainState& state = {});

}  // namespace mh::train
