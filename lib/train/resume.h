// Decides whether a run may resume with a configuration.
#pragma once

#include <string>

#include "train/run_config.h"
#include "train/schedule.h"
#include "train/train_state.h"

namespace mh::train {

// Compares the configuration with the one stored in `file`. Throws Error(usage) if the model, the data or the batches
// differ; logs every other change, and warns if a new length moves the end of the schedule.
void require_same_run(const RunConfig& run, const std::string& stored_toml, const std::string& file);

// Checks the restored state of a run that ends after `end` updates. Throws Error(usage) if the run is past its end.
// Warns if the updates from here on differ from those of an uninterrupted run: another version of the learning-rate
// rule, or another number of threads. Sets the state to the present version of the rule.
void continue_state(TrainState& state, const TrainOptions& options, const ScheduleLengths& lengths, int64_t end);

}  // namespace mh::train
