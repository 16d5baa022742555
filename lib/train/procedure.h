// Procedures: training methods that act outside the layers, one file each in procedures/, enabled by a section:
//
//   [train.procedures.block-coordinate]
//   every = 5
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/observers.h"
#include "model/language_model.h"
#include "train/optimizer.h"
#include "train/plugins.h"
#include "train/train_progress.h"

namespace mh::train {

// One forward pass, backward pass and optimiser step over the batch of an update.
struct Pass {
  nn::Requests requests{};                                   // requests to the stages of a method
  std::function<bool(const nn::Parameter& parameter)> acts;  // whether a parameter is trained; empty: all are
  std::vector<bool> skipped{};                               // skipped layers (nn::ForwardContext); empty: none
};

// Facts that are fixed for the run.
struct Plan {
  uint64_t seed = 0;
  int64_t end = 0;                                // updates in the run
  std::function<int64_t(const Length&)> updates;  // converts a length to updates
  bool validates = false;                         // the run has a validation set
  bool validates_epochs = false;                  // each epoch ends with a validation
  int64_t next_validation = 0;                    // update of the next validation; 0: none
  bool has_best = false;                          // a validation before a resume has saved best weights
  bool weights_move = false;                      // moves_weights() of some procedure
  std::function<std::string(const std::string& parameter)> optimizer;  // update rule of a parameter, such as adamw
};

// The objects that a procedure may change between epochs.
struct Training {
  model::LanguageModel& model;
  Optimizer& optimizer;
};

class Procedure {
 public:
  virtual ~Procedure() = default;
  virtual void describe(Fields& f) = 0;
  // Returns whether fine-tuning inherits this procedure: true if models of a kind are trained this way whatever the
  // data and the length.
  virtual bool inherited_by_finetuning() const { return false; }
  // Called once, before start(). Throws Error(usage) if the procedure cannot act in this run.
  virtual void plan(const Plan&) {}
  // Called once, before the first update. Throws Error(usage) if the procedure cannot act on the model.
  virtual void start(model::LanguageModel& model) = 0;
  // Returns the passes of an update; empty: this procedure does not choose them. At most one procedure may return
  // passes.
  virtual std::vector<Pass> passes(const TrainProgress&) const { return {}; }
  // Returns the epochs, from 0, in which passes() returns a kind of pass for the first time. Each needs a parameter
  // that is not frozen then; as freezing only ends, later epochs need no check.
  virtual std::vector<int64_t> first_epochs() const { return {0}; }
  // Returns whether the procedure permutes weights between epochs and must know where they are.
  virtual bool moves_weights() const { return false; }
  // Changes each pass of an update, whichever procedure requested it.
  virtual void change(Pass&, const TrainProgress&) const {}
  // Returns whether training continues, after `progress.update` updates, from the best weights so far with a fresh
  // optimiser. `stalled`: train.validation.patience is exhausted; the run stops unless a procedure returns to the best
  // weights.
  virtual bool returns_to_best(const TrainProgress&, bool /*stalled*/) { return false; }
  // Returns whether observer() ever returns an observer.
  virtual bool observes() const { return false; }
  // Returns the observer of the validation at the end of this epoch, or null. Called again if that validation was
  // interrupted.
  virtual attention::Observer* observer(const TrainProgress&) { return nullptr; }
  // Called after the last update of an epoch and its validation; may change parameters.
  virtual void after_epoch(model::LanguageModel&, const TrainProgress&) {}
  // Called before the first update of an epoch; may change parameters. The model saved at the end of an epoch is
  // therefore the model that was validated, and so is the last one of a run. Returns what the procedure did, as JSON
  // for the log, or "".
  virtual std::string before_epoch(const Training&, const TrainProgress&) { return ""; }
  // Returns the state that a resume needs, as JSON; part of the training state.
  virtual std::string state() const { return "{}"; }
  virtual void set_state(const std::string&) {}
};

Registry<Procedure>& procedures();
using Procedures = Plugins<Procedure>;

}  // namespace mh::train
