// What an update trains: the passes that it takes, and the parameters that each of them changes.
#pragma once

#include <vector>

#include "train/batches.h"
#include "train/run_config.h"
#include "train/train_progress.h"

namespace mh::train {

class PassPlanner {
 public:
  // All must outlive this. `batches`: null where there are no data yet, and then no group thaws too late.
  PassPlanner(const RunConfig& run, nn::ParameterList& parameters, const Batches* batches);

  // The passes of the update after `here`. A pass that would train nothing that train.trainable names is left out; an
  // update that is left none takes a plain one. Error(usage) where two procedures say.
  std::vector<Pass> passes(const TrainProgress& here) const;
  // Lets the parameters of a pass train, and no other: those that are frozen need no gradient.
  void apply(const Pass& pass, const TrainProgress& here);
  // Error(usage) where some pass of the run would find all its parameters frozen. The procedures have been started.
  void check() const;
  // Numbers in the parameters that train at some time of the run.
  int64_t trained() const;
  // Whether train.trainable leaves out passes of an update, now or later.
  bool skips_passes() const;

 private:
  std::vector<Pass> requested_passes(const TrainProgress& here) const;  // by procedures
  bool acts(const Pass& pass) const;
  std::vector<TrainProgress> change_points() const;
  bool trains(size_t parameter, const Pass& pass, const TrainProgress& here) const;
  const RunConfig& run_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<bool> named_;            // by parameter: whether train.trainable names it, or nothing
  std::vector<int64_t> freeze_until_;  // by parameter: the update from which its group lets it train
  const Batches* batches_;
};

}  // namespace mh::train
