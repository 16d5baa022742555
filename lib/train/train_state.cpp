#include "train/train_state.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "io/checkpoint.h"

namespace mh::train {

namespace {

constexpr TrainingKey kTrainingKeys[]{
    {"update", "Number of completed updates."},
    {"tokens", "Number of targets trained on since the start of training."},
    {"best_update", "Number of completed updates at the best validation; 0 before the first validation."},
    {"worse", "Number of validations without improvement, which train.validation.patience limits."},
    {"last_lr", "Learning rate of the last update."},
    {"norm", "Gradient norm of the last update, before clipping."},
    {"settled",
     "Whether the validation, log line and saves due after the last update are done; if false, a "
     "resume does this work first."},
    {"threads", "Number of CPU threads of the process that saved the state."},
    {"nll", "Sum of negative log-likelihoods since the last line of log.jsonl, in nats."},
    {"smoothed", "Sum of the training loss, label smoothing included, since the last line of log.jsonl, in nats."},
    {"counted", "Number of targets trained on since the last line of log.jsonl."},
    {"steps", "Number of optimiser steps of each parameter, by parameter name."},
    {"procedures", "State of each procedure, as JSON text, by name of the procedure."},
    {"memory", "Whether the file contains the tensors memory.* of a Transformer-XL memory."},
    {"kept", "Score of each model retained by train.checkpoint.retain_by = \"best\", by number of updates."},
    {"schedule_rule",
     "Version of the learning-rate rule. 2: update n takes the learning rate at n - 1 completed updates; 1, or "
     "absent: at n completed updates."},
    {"best",
     "Score of the best validation, where lower is better: loss in nats, or minus BLEU or minus a score of the task. "
     "Absent before the first validation."},
    {"counted_best",
     "Score from which train.validation.min_improvement is measured. Absent before the first "
     "validation."},
};

}  // namespace

std::span<const TrainingKey> training_keys() { return kTrainingKeys; }

std::string to_json(const TrainState& s) {
  const SelectionState& selection = s.selection;
  nlohmann::ordered_json j{{"update", s.update},
                           {"tokens", s.num_targets},
                           {"best_update", selection.best_update},
                           {"worse", selection.stale_validations},
                           {"last_lr", s.last_lr},
                           {"norm", s.gradient_norm},
                           {"settled", s.is_complete},
                           {"threads", s.num_threads},
                           {"nll", s.sums_since_log.nll},
                           {"smoothed", s.sums_since_log.smoothed_loss},
                           {"counted", s.sums_since_log.num_targets},
                           {"steps", s.steps},
                           {"procedures", s.procedure_states},
                           {"memory", s.has_memory},
                           {"kept", selection.retained_scores},
                           {"schedule_rule", s.schedule_version}};
  if (std::isfinite(selection.best_score)) j["best"] = selection.best_score;
  if (std::isfinite(selection.reference_score)) j["counted_best"] = selection.reference_score;
  return j.dump();
}

TrainState parse_train_state(const std::string& json, const std::string& name) {
  const std::string where = name + ": " + io::kTrainingKey, advice = "resume from an unmodified training state";
  require_sound_json(json, where, advice);
  auto j = nlohmann::json::parse(json, nullptr, false);
  TrainState s;
  SelectionState& selection = s.selection;
  try {
    const auto integer = [&](const char* key) { return integer_of<int64_t>(j.at(key)); };
    s.update = integer("update"), s.num_targets = integer("tokens");
    selection.best_update = integer("best_update"), selection.stale_validations = integer("worse");
    s.last_lr = j.at("last_lr"), s.gradient_norm = j.at("norm"), s.is_complete = j.at("settled");
    s.num_threads = integer("threads"), s.steps = integers_by_key<int64_t>(j.at("steps"));
    s.procedure_states = j.at("procedures"), s.has_memory = j.at("memory");
    s.sums_since_log.nll = j.at("nll"), s.sums_since_log.smoothed_loss = j.at("smoothed");
    s.sums_since_log.num_targets = integer("counted");
    // Training states of earlier versions lack the keys `kept`, `schedule_rule` and `counted_best`. The keys `best` and
    // `counted_best` are also absent before the first validation.
    if (j.contains("kept"))
      for (const auto& entry : j.at("kept"))
        selection.retained_scores[integer_of<int64_t>(entry.at(0))] = entry.at(1).get<double>();
    s.schedule_version = j.contains("schedule_rule") ? integer("schedule_rule") : 1;
    selection.best_score = j.value("best", selection.best_score),
    selection.reference_score = j.value("counted_best", selection.best_score);
  } catch (const nlohmann::json::exception& error) {
    refuse_input(where, "the JSON object of a training state", json_error_text(error.what()), advice);
  }
  return s;
}

}  // namespace mh::train
