// The options that fine-tuning inherits from the training of its checkpoint. Lengths, rates and data are set anew; how
// a model of its kind is trained is inherited:
//
//   parameter groups   without freeze_until, which is a length, and without patterns that match no parameter
//   procedures         whose inherited_by_finetuning() is true, such as block-coordinate, which alternates between the
//                      gates of a mixture and the other parameters
//
// Regularisers and other procedures are left out.
#pragma once

#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the inherited options as TOML; "" if there are none.
std::string inherited_sections(const io::Checkpoint& checkpoint);

}  // namespace mh::train
