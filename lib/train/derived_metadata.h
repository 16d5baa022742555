// The metadata of a checkpoint whose parameters a tool computes from another checkpoint, such as a pruned or a folded
// model.
#pragma once

#include "io/checkpoint.h"
#include "model/model_config.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the metadata of `source` without its training state, which does not belong to other parameters.
io::Metadata derived_metadata(const io::Checkpoint& source);

// Returns the metadata of `source` that the files of a training run have too if the run starts from `source` or resumes
// it: the metadata that later conversions to Hugging Face need.
io::Metadata inherited_metadata(const io::Checkpoint& source);

// Sets the configuration in `metadata` to `run_config` with the model `model_config`. `run_config`: the configuration
// of the source; its sections other than [model] and [attention] stay unchanged.
void set_model(io::Metadata& metadata, RunConfig run_config, const model::ModelConfig& model_config);

}  // namespace mh::train
