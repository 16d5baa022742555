// Plans the training passes of each update (struct TrainingPass: one forward pass, backward pass and optimiser step)
// and the parameters that each pass trains.
#pragma once

#include <vector>

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_progress.h"

namespace mh::train {

class PassPlanner {
 public:
  // All arguments must outlive the planner. `batches`: null before the data are opened; the planner then ignores
  // freeze_until of parameter groups.
  PassPlanner(const RunConfig& run, nn::ParameterList& parameters, const Batches* batches);

  // Returns the passes of update progress.update. Omits requested passes that would train no parameter of
  // train.trainable. If no pass is requested or all are omitted, returns one default pass, which trains all parameters
  // that are not frozen. Calls Procedure::modify_pass() for each pass. Throws Error(usage) if two procedures request
  // passes.
  std::vector<TrainingPass> passes(const TrainProgress& progress) const;
  // Enables gradients for the parameters that `pass` trains and that are not frozen; disables all other gradients.
  void apply(const TrainingPass& pass, const TrainProgress& progress);
  // Throws Error(usage) if any pass of the run would have only frozen parameters. Procedure::start() must have been
  // called for all procedures.
  void check() const;
  // Returns the number of elements of the trainable parameters that train.trainable selects and that no parameter group
  // freezes throughout training.
  int64_t num_trained_parameters() const;
  // Returns how many of the elements that num_trained_parameters() counts are in parameters with a divisible master
  // (has_divisible_master()).
  int64_t num_trained_divisible_parameters() const;
  // Returns whether passes() omits any requested pass in the run.
  bool skips_passes() const;

 private:
  // Returns the passes that a procedure requests for an update; empty if no procedure requests passes.
  std::vector<TrainingPass> requested_passes(const TrainProgress& progress) const;
  // Returns whether a pass trains any parameter that train.trainable selects.
  bool trains_any_parameter(const TrainingPass& pass) const;
  // Returns the first update of each epoch in which a new kind of pass may occur, for checks of the whole run.
  std::vector<TrainProgress> pass_change_points() const;
  // Returns whether a pass of an update trains parameters_[parameter_index].
  bool trains(size_t parameter_index, const TrainingPass& pass, const TrainProgress& progress) const;
  // Returns whether any update may train parameters_[parameter_index], by train.trainable and the parameter groups.
  bool is_trained(size_t parameter_index) const;
  const RunConfig& run_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<bool> is_selected_;      // by parameter: whether train.trainable is empty or selects the parameter
  std::vector<int64_t> freeze_until_;  // by parameter: first update in which no group freezes the parameter
  const Batches* batches_;
};

}  // namespace mh::train
