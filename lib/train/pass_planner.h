// Plans the passes of each update and the parameters that each pass trains.
#pragma once

#include <vector>

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_progress.h"

namespace mh::train {

class PassPlanner {
 public:
  // All arguments must outlive this. `batches`: null before the data are opened; the check that groups unfreeze in time
  // is then left out.
  PassPlanner(const RunConfig& run, nn::ParameterList& parameters, const Batches* batches);

  // Returns the passes of the update after `progress`. Passes that would train none of the parameters of
  // train.trainable are left out; if none is left, the update takes a plain pass. Throws Error(usage) if two procedures
  // request passes.
  std::vector<Pass> passes(const TrainProgress& progress) const;
  // Enables gradients for the parameters of a pass and disables them for all others.
  void apply(const Pass& pass, const TrainProgress& progress);
  // Throws Error(usage) if all parameters of some pass of the run are frozen. The procedures must have been started.
  void check() const;
  // Returns the number of elements of the parameters that train at some time of the run.
  int64_t trained() const;
  // Returns whether train.trainable leaves out passes of any update.
  bool skips_passes() const;

 private:
  std::vector<Pass> requested_passes(const TrainProgress& progress) const;  // passes that procedures request
  bool acts(const Pass& pass) const;
  std::vector<TrainProgress> change_points() const;
  bool trains(size_t parameter, const Pass& pass, const TrainProgress& progress) const;
  const RunConfig& run_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<bool> named_;            // by parameter: whether train.trainable selects it, or is empty
  std::vector<int64_t> freeze_until_;  // by parameter: update from which its group trains it
  const Batches* batches_;
};

}  // namespace mh::train
