// What steers training from outside the layers, one file each in procedures/, turned on by a section of its own:
//
//   [train.procedures.block-coordinate]
//   every = 5
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "train/plugins.h"
#include "train/standing.h"

namespace mh::train {

// One forward pass, backward pass and step of the optimiser over an update's batch.
struct Pass {
  bool sample_experts = false;                                  // see attention::Step
  std::function<bool(const model::Parameter& parameter)> acts;  // on which parameters; empty: all
};

class Procedure {
 public:
  virtual ~Procedure() = default;
  virtual void describe(Fields& f) = 0;
  // Called once, before the first update. Error(usage) where it cannot act on the model.
  virtual void start(model::LanguageModel& model) = 0;
  // The passes of an update, or none where it leaves that to others. Two procedures must not both say.
  virtual std::vector<Pass> passes(const Standing&) const { return {}; }
  // After the last update of an epoch, its validation included; may change parameters.
  virtual void after_epoch(model::LanguageModel&, const Standing&) {}
  // What a resume needs, as JSON; part of the training state.
  virtual std::string state() const { return "{}"; }
  virtual void set_state(const std::string&) {}
};

Registry<Procedure>& procedures();
using Procedures = Plugins<Procedure>;

}  // namespace mh::train
