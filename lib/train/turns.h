// What an update trains: the passes that it takes, and the parameters that each of them changes.
#pragma once

#include <vector>

#include "train/batches.h"
#include "train/run_config.h"
#include "train/standing.h"

namespace mh::train {

class Turns {
 public:
  // All must outlive this. `batches`: null where there are no data yet, and then no group thaws too late.
  Turns(const RunConfig& run, model::ParameterList& parameters, const Batches* batches);

  // The passes of the update after `here`. Error(usage) where two procedures say.
  std::vector<Pass> passes(const Standing& here) const;
  // Lets the parameters of a pass train, and no other: those that are frozen need no gradient.
  void choose(const Pass& pass, const Standing& here);
  // Error(usage) where some pass of the run would find all its parameters frozen. The procedures have been started.
  void check() const;

 private:
  bool trains(size_t parameter, const Pass& pass, const Standing& here) const;
  const RunConfig& run_;
  std::vector<model::Parameter*> parameters_;
  std::vector<int64_t> freeze_until_;  // by parameter: the update from which its group lets it train
  const Batches* batches_;
};

}  // namespace mh::train
