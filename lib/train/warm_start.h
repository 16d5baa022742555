// The weights that a new run starts from (mh-train --from, mh-finetune).
#pragma once

#include "model/load.h"
#include "train/options.h"

namespace mh::train {

struct WarmStart {
  const io::Checkpoint* checkpoint = nullptr;  // null: initial values from the seed
  // whether parameters may be missing in the checkpoint, or tensors of the checkpoint in the model
  // (model/partial_load.h); otherwise both must have the same parameters
  bool partial = false;
};

// Initialises the parameters from the seed and then, if there is one, from the checkpoint, whose vocabulary is checked
// elsewhere. A partial load logs which parameters are new and which tensors are left out, and warns if the new ones
// change hidden states or never train. Sets the composed path.
void initialise(model::LanguageModel& model, const TrainOptions& options, const WarmStart& start);

}  // namespace mh::train
