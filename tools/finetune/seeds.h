// mh-finetune --seeds: runs that differ only in their seed.
#pragma once

#include "common/train_setup.h"

namespace mh::train_setup {

// Trains args.num_seeds runs, one after the other, in the folders OUT/seedN. The first seed N is args.seed, or 1 if
// args.seed is not set, and N increases by 1 from run to run. With args.resume, resumes the runs that have begun, and
// begins the others, for which args.checkpoint_path must be set. With a validation set, prints a table row for the best
// model of each run, then the mean and the sample standard deviation. A stop signal ends the current run, which saves
// its training state, and no further run starts.
void run_seeds(const Arguments& args, Tool& tool);

}  // namespace mh::train_setup
