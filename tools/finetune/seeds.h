// mh-finetune --seeds: runs that differ only in their seed.
#pragma once

#include "common/train_setup.h"

namespace mh::train_setup {

// Trains args.num_seeds runs in OUT/seedN, one after the other, with seeds N from args.seed (default 1). With a
// validation set, prints a table row for the best model of each run, then the mean and the sample standard deviation. A
// stop signal ends the current run, which saves its training state, and no further run starts.
void run_seeds(const Arguments& args, Tool& tool);

}  // namespace mh::train_setup
