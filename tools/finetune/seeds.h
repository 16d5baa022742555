// mh-finetune --seeds: runs that differ by their seed alone.
#pragma once

#include "common/train_setup.h"

namespace mh::train_setup {

// Trains OUT/seedN for a.seeds seeds from a.seed on (1 where none is given), one after another; with a validation set
// prints a line for each one's best model, then the mean and the sample deviation. A signal ends it as it ends a run.
void run_seeds(const Arguments& a, Tool& tool);

}  // namespace mh::train_setup
