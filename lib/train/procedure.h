// What steers training from outside the layers, one file each in procedures/, turned on by a section of its own:
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

// One forward pass, backward pass and step of the optimiser over an update's batch.
struct Pass {
  nn::Requests requests{};                                   // to the stages of a method
  std::function<bool(const nn::Parameter& parameter)> acts;  // on which parameters; empty: all
  std::vector<bool> skipped{};                               // layers, see nn::ForwardContext; empty: none
};

// What is fixed for the run.
struct Plan {
  uint64_t seed = 0;
  int64_t end = 0;                                // updates in the run
  std::function<int64_t(const Length&)> updates;  // in a length
  bool validates = false;                         // there is a validation set
  bool validates_epochs = false;                  // and each epoch ends with a validation
  int64_t next_validation = 0;                    // update after which it comes; 0: none
  bool has_best = false;                          // a validation, before a resume, has left best weights
  bool weights_move = false;                      // some procedure moves_weights()
  std::function<std::string(const std::string& parameter)> optimizer;  // its rule, such as adam
};

// What may be changed between epochs.
struct Training {
  model::LanguageModel& model;
  Optimizer& optimizer;
};

class Procedure {
 public:
  virtual ~Procedure() = default;
  virtual void describe(Fields& f) = 0;
  // Whether it is how models of a kind are trained, whatever the data and the length, so that fine-tuning takes it
  // over.
  virtual bool inherited_by_finetuning() const { return false; }
  // Called once, before start(). Error(usage) where it cannot act in such a run.
  virtual void plan(const Plan&) {}
  // Called once, before the first update. Error(usage) where it cannot act on the model.
  virtual void start(model::LanguageModel& model) = 0;
  // The passes of an update, or none where it leaves that to others. Two procedures must not both say.
  virtual std::vector<Pass> passes(const TrainProgress&) const { return {}; }
  // Epochs, from 0, in which passes() gives a kind of pass for the first time. What is frozen then must leave it
  // something to train; freezing only ends, so no later epoch need be looked at.
  virtual std::vector<int64_t> first_epochs() const { return {0}; }
  // Whether it moves weights about between epochs and must know where they are.
  virtual bool moves_weights() const { return false; }
  // Adds to each pass of an update, whoever has said it.
  virtual void change(Pass&, const TrainProgress&) const {}
  // Whether training, after `here.update` updates, goes on from the best weights so far with a fresh optimiser.
  // `stalled`: train.validation.patience is spent, so that the run stops where nobody returns.
  virtual bool returns_to_best(const TrainProgress&, bool /*stalled*/) { return false; }
  // Whether observer() ever gives one.
  virtual bool observes() const { return false; }
  // To be shown the validation that now ends an epoch, or null. It may be asked again, where that was broken off.
  virtual attention::Observer* observer(const TrainProgress&) { return nullptr; }
  // After the last update of an epoch, its validation included; may change parameters.
  virtual void after_epoch(model::LanguageModel&, const TrainProgress&) {}
  // Before the first update of an epoch; may change parameters. What is saved at the end of an epoch is thus what was
  // validated, and a run ends with it. What it did, as JSON for the log, or "".
  virtual std::string before_epoch(const Training&, const TrainProgress&) { return ""; }
  // What a resume needs, as JSON; part of the training state.
  virtual std::string state() const { return "{}"; }
  virtual void set_state(const std::string&) {}
};

Registry<Procedure>& procedures();
using Procedures = Plugins<Procedure>;

}  // namespace mh::train
