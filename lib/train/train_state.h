// The progress of a run: the JSON entry "multihead.training" of a training state, which a resume restores.
// mh-checkpoint(5) describes the keys.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace mh::train {

// The version of the learning-rate rule. 2: update n takes the rate at n - 1 completed updates. 1, of states without
// the key: at n.
constexpr int64_t kScheduleRule = 2;

// Validation results so far, the lower the better: losses in nats per token, or negative scores
// (train.validation.metric).
struct SelectionState {
  double best = INFINITY;
  int64_t best_update = 0;
  double reference_best = INFINITY;  // the value that train.validation.min_improvement is measured from
  int64_t stale_validations = 0;     // validations since reference_best
  std::map<int64_t, double> kept;    // models of the best validations (train.checkpoint.retain_by), by update
};

// Sums over the targets since the last line of the log.
struct LogSums {
  double nll = 0;
  double smoothed = 0;
  int64_t counted = 0;
};

struct TrainState {
  int64_t update = 0;  // completed updates
  int64_t tokens = 0;  // targets trained on
  SelectionState selection;
  int64_t schedule_rule = kScheduleRule;
  double last_lr = 0;
  double norm = 0;  // gradient norm of the last update
  // Whether the work after the last update (validation, log, saving) is done. A run stopped by a signal leaves that
  // work to the resumed run, so that no validation is skipped.
  bool is_complete = true;
  int64_t threads = 0;                            // of the process that saved the state
  std::map<std::string, int64_t> steps;           // optimiser steps by parameter
  std::map<std::string, std::string> procedures;  // states by name
  bool memory = false;                            // the file has the tensors of a memory
  LogSums since_log;
};

// A key of the entry and its meaning, for `mh-train --list training` and mh-checkpoint(5). The command-line case
// checkpoint_page compares the names with those of real training states.
struct TrainingKey {
  const char* name;
  const char* meaning;
};
std::span<const TrainingKey> training_keys();

std::string to_json(const TrainState& state);
// Parses the entry of the file `name`. Throws Error(input) for a missing key or a value of another type.
TrainState parse_train_state(const std::string& json, const std::string& name);

}  // namespace mh::train
