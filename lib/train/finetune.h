// What fine-tuning takes over of the training that a checkpoint comes from. Lengths, rates and data are new; how a
// model of its kind is trained is not:
//
//   parameter groups                   without freeze_until, which is a length, and without patterns that match nothing
//   procedures that say inherited_by_finetuning()      as block-coordinate, which trains the gates of a mixture in turn
//   with the rest
//
// Regularisers and other procedures are left out.
#pragma once

#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

// As TOML, "" where there is nothing.
std::string taken_over(const io::Checkpoint& checkpoint);

}  // namespace mh::train
