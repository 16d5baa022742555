// The part of a training state that is not a tensor: the JSON entry "multihead.training" of last.safetensors, which a
// resume restores. mh-checkpoint(5) describes the keys.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace mh::train {

// The current version of the learning-rate rule. Version 2: update n takes the learning rate at n - 1 completed
// updates. Version 1, also the version of training states without the key "schedule_rule": update n takes the learning
// rate at n completed updates.
constexpr int64_t kScheduleVersion = 2;

// The state of model selection. Scores are losses (Validation::loss), or minus the score that train.validation.metric
// names, so that lower is better.
struct SelectionState {
  double best_score = INFINITY;       // score of the best validation; infinite before the first
  int64_t best_update = 0;            // number of completed updates at the best validation
  double reference_score = INFINITY;  // score from which train.validation.min_improvement is measured
  int64_t stale_validations = 0;      // number of validations without improvement on reference_score
  // With retain_by = "best": score of each retained model, by number of updates.
  std::map<int64_t, double> retained_scores;
};

// Sums over all targets trained on since the last line of log.jsonl that has a training loss.
struct SumsSinceLog {
  double nll = 0;            // negative log-likelihood, nats
  double smoothed_loss = 0;  // training loss, label smoothing included, nats
  int64_t num_targets = 0;
};

struct TrainState {
  int64_t update = 0;       // number of completed updates
  int64_t num_targets = 0;  // number of targets trained on since the start of training
  SelectionState selection;
  int64_t schedule_version = kScheduleVersion;  // version of the learning-rate rule
  double last_lr = 0;                           // learning rate of the schedule in the last update; 0 before the first
  double gradient_norm = 0;                     // gradient norm of the last update, before clipping
  // Whether the work after the last update (validation, log, saving) is done. A run stopped by a signal leaves this
  // work to the resumed run, so that no validation is skipped.
  bool is_complete = true;
  int64_t num_threads = 0;                              // number of CPU threads of the process that saved the state
  std::map<std::string, int64_t> steps;                 // number of optimiser steps by name of the parameter
  std::map<std::string, std::string> procedure_states;  // Procedure::state() by name of the procedure
  bool has_memory = false;  // whether the file contains the tensors of a Transformer-XL memory
  SumsSinceLog sums_since_log;
};

// A key of the JSON entry and its meaning, for `mh-train --list training` and mh-checkpoint(5). The test
// checkpoint_page compares the names with the keys of training states that mh-train writes.
struct TrainingKey {
  const char* name;
  const char* meaning;
};
std::span<const TrainingKey> training_keys();

std::string to_json(const TrainState& state);
// Parses the JSON entry of the training state in the file `name`. Throws Error(input) for a missing key that is not
// optional (mh-checkpoint(5)), and for a value of the wrong type.
TrainState parse_train_state(const std::string& json, const std::string& name);

}  // namespace mh::train
