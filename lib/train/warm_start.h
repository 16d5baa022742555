// The weights that a new run starts from (mh-train --from, mh-finetune).
#pragma once

#include "model/load.h"
#include "train/options.h"

namespace mh::train {

struct WarmStart {
  const io::Checkpoint* checkpoint = nullptr;  // null: initial values from the seed
  // Whether the model may have parameters that the checkpoint lacks, or lack some of its own (model/partial_load.h).
  // Otherwise both must be the same.
  bool partial = false;
};

// Initialises the parameters from the seed and then, where there is a checkpoint, from the checkpoint; the checkpoint's
// vocabulary is checked elsewhere. A partial load logs which parameters are new and which tensors are left out, and
// warns where the new ones change hidden states or never train. Sets the composed path.
void initialise(model::LanguageModel& model, const TrainOptions& options, const WarmStart& start);

}  // namespace mh::train
