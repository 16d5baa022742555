// Checks whether a run can resume with a configuration.
#pragma once

#include <string>

#include "train/run_config.h"
#include "train/schedule.h"
#include "train/train_state.h"

namespace mh::train {

// Returns whether the learning-rate schedule or a loss term depends on train.length. This is the case if
// train.schedule.length is not set and at least one of these conditions holds: the learning rate decays until the end
// of training; the warm-up is a fraction of the length of the schedule (train.schedule.warmup_ratio without
// train.schedule.restart); a regulariser depends on the completed fraction of the schedule.
bool depends_on_length(const RunConfig& run);

// Compares the configuration `run` with `stored_toml`, the configuration of the run to resume. `file`: name of the file
// that contains `stored_toml`, for messages. A key is changeable if describe() marks it with .changeable(), or, in a
// run without a validation set, with .fixed_with_validation_set() (base/fields.h). Throws Error(usage) if another key
// differs, and Error(input) if `stored_toml` is invalid. Logs the differences in changeable keys, warns if a new
// train.length changes the schedule (depends_on_length()), and returns whether a changeable key differs.
bool require_same_run(const RunConfig& run, const std::string& stored_toml, const std::string& file);

// Checks the restored state of a run that ends after `end` updates. Throws Error(usage) if more than `end` updates are
// completed. Warns if an uninterrupted run would compute the remaining updates differently, because of another
// version of the learning-rate rule or another number of threads. Sets state.schedule_version to kScheduleVersion.
void check_restored_state(TrainState& state, const TrainOptions& options, const ScheduleLengths& lengths, int64_t end);

}  // namespace mh::train
