// Initialises the weights of a new run, at random or from a checkpoint (warm start: mh-train --from, mh-finetune).
#pragma once

#include "model/load.h"
#include "train/options.h"

namespace mh::train {

struct WarmStart {
  const io::Checkpoint* checkpoint = nullptr;  // checkpoint to load; null: random initial values
  // Whether to load only the parameters that both the checkpoint and the model have (partial load,
  // model/partial_load.h). false: the checkpoint and the model must have the same parameters.
  bool is_partial = false;
};

// Initialises the parameters: from the checkpoint, whose vocabulary the caller must have checked, or at random from
// train.seed. A partial load initialises at random the parameters that the checkpoint lacks, logs the names of new
// parameters and of tensors that are not loaded, and warns if new parameters change the hidden states or are never
// trained. If there are new parameters, it also sets the attention path of the model to `composed`.
void initialise(model::LanguageModel& model, const TrainOptions& options, const WarmStart& warm_start);

}  // namespace mh::train
