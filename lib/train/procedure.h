// The interface of procedures: training methods that change the training loop and not the layers, such as alternating
// optimisation or swaps of heads. Each procedure is a file in procedures/, and a configuration section enables it:
//
//   [train.procedures.block-coordinate]
//   every = 5
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/observers.h"
#include "model/language_model.h"
#include "train/optimizer.h"
#include "train/plugins.h"
#include "train/train_progress.h"

namespace mh::train {

// A forward pass, a backward pass and an optimiser step over the batch of an update. An update has one training
// pass unless a procedure requests several.
struct TrainingPass {
  // Requests to attention stages (scores, mixers, combiners) or to the backbone during this pass.
  nn::Requests requests{};
  // Returns whether the pass trains a parameter; empty: the pass trains all parameters.
  std::function<bool(const nn::Parameter& parameter)> trains_parameter;
};

// Properties of a run when it starts or resumes.
struct RunProperties {
  uint64_t seed = 0;                                 // train.seed
  int64_t num_updates = 0;                           // number of updates in the run
  std::function<int64_t(const Length&)> to_updates;  // converts a length of training to updates
  bool has_validation_set = false;                   // whether the run has a validation set
  bool validates_each_epoch = false;                 // whether there is a validation at the end of each epoch
  int64_t next_validation_update = 0;                // number of completed updates at the next validation; 0: none
  bool has_best_weights = false;                     // whether the run resumes with weights in best.safetensors
  std::string weight_moving_procedure;               // name of a procedure with moves_weights(); empty: none
  // Returns the update rule of a parameter by its name, such as "adamw".
  std::function<std::string(const std::string& parameter)> update_rule_of;
};

// References to the objects that Procedure::before_epoch() may change.
struct ModelAndOptimizer {
  model::LanguageModel& model;
  Optimizer& optimizer;
};

// In a job of several processes, every process has its own objects, and the trainer calls every function in each of
// them. The functions must decide alike, so they may depend only on their arguments, on the model and the optimiser,
// which are equal in all processes, on the run properties, and on random numbers derived from train.seed. The
// exceptions are observer() and after_epoch(): each process observes the whole validation, and after after_epoch() all
// processes take the state() of rank 0 by set_state().
class Procedure {
 public:
  virtual ~Procedure() = default;
  virtual void describe(Fields& f) = 0;
  // Returns whether fine-tuning inherits this procedure from the configuration of a checkpoint. True for a procedure
  // that belongs to a kind of model and is independent of data and length.
  virtual bool is_inherited_by_finetuning() const { return false; }
  // Receives the properties of the run. Called once, before start(); not called in a dry run that has no data or no
  // train.length. Throws Error(usage) if the procedure cannot act in this run.
  virtual void set_run_properties(const RunProperties&) {}
  // Prepares the procedure for a model. Called once, before the first update. Throws Error(usage) if the procedure does
  // not support the model.
  virtual void start(model::LanguageModel& model) = 0;
  // Returns quantities of the training to come that follow from the options and the model, by name, such as
  // "expected_context"; null if there are none. A dry run prints them, and training logs them when it starts or
  // resumes. Called after start().
  virtual nlohmann::ordered_json expected_values() const { return nullptr; }
  // Returns the passes of an update; empty if the procedure does not request passes. At most one procedure of a run may
  // request passes.
  virtual std::vector<TrainingPass> passes(const TrainProgress&) const { return {}; }
  // Returns the first epoch, counted from 0, of each kind of pass that passes() returns. PassPlanner::check() verifies
  // that the passes of these epochs have a trainable parameter. Parameters are unfrozen during a run, never frozen, so
  // later epochs need no check.
  virtual std::vector<int64_t> first_epochs_of_passes() const { return {0}; }
  // Returns whether the procedure moves weights of the model between epochs and records the moves in its state. Such a
  // procedure cannot train with several processes and train.shard=optimizer, since it needs whole weights and moments.
  virtual bool moves_weights() const { return false; }
  // Modifies a pass of an update. Called for every pass, also for passes that other procedures requested.
  virtual void modify_pass(TrainingPass&, const TrainProgress&) const {}
  // Returns whether training returns to the best weights so far and resets the optimiser, after progress.update
  // completed updates. `is_stalled`: whether train.validation.patience is exhausted; the run then stops unless a
  // procedure returns true.
  virtual bool returns_to_best(const TrainProgress&, bool /*is_stalled*/) { return false; }
  // Returns whether observer() can return an observer in this run.
  virtual bool observes() const { return false; }
  // Returns an observer for the validation at the end of an epoch, or null. The argument is the progress after this
  // epoch. Called a second time for the same epoch if a signal interrupted the validation.
  virtual attention::Observer* observer(const TrainProgress&) { return nullptr; }
  // Called after the last update of an epoch and the validation that follows it, if one is due, and before the training
  // state is saved; may change parameters.
  virtual void after_epoch(model::LanguageModel&, const TrainProgress&) {}
  // Called before the first update of an epoch; may change parameters. With several processes, each makes the changes
  // itself; the trainer then compares state() of all processes and throws Error(failed) if two of them differ, so the
  // state must contain every decision. A training state that is due at the end of the previous epoch is saved before
  // this call, and so contains the validated model without these changes. Returns a JSON object for log.jsonl that
  // describes the changes; "" if there are none.
  virtual std::string before_epoch(const ModelAndOptimizer&, const TrainProgress&) { return ""; }
  // Returns the state of the procedure as JSON. The training state contains it, and a resume passes it to set_state().
  virtual std::string state() const { return "{}"; }
  // Restores a state that state() returned. Throws Error(input) for a text that the procedure cannot read.
  virtual void set_state(const std::string&) {}
};

Registry<Procedure>& procedures();
using Procedures = Plugins<Procedure>;

}  // namespace mh::train
