// Selects the options that fine-tuning inherits from the configuration of its checkpoint. Lengths, the learning-rate
// schedule and data belong to a run and are not inherited. The options that belong to the kind of model are inherited:
//
//   parameter groups   without freeze_until, which is a length, and without patterns that match no parameter
//   procedures         only procedures whose is_inherited_by_finetuning() is true, such as block-coordinate, which
//                      alternates between the gates of a mixture of experts and the other parameters
//
// Regularisers and other procedures are not inherited.
#pragma once

#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the options that fine-tuning inherits from `checkpoint`, as TOML; "" if there are none. Throws Error(input)
// if the configuration of the checkpoint is invalid.
std::string inherited_sections(const io::Checkpoint& checkpoint);

}  // namespace mh::train
