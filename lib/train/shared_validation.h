// Makes the validation of rank 0 the result of all processes of a job.
#pragma once

#include "distributed/group.h"
#include "train/validation.h"

namespace mh::train {

// Waits until all processes have validated, and returns the result of rank 0, bit for bit. A stop signal may have ended
// the validation of a process early, so results may differ in their scores.
Validation validation_of_rank_0(const Validation& own_validation, const distributed::Group& group);

}  // namespace mh::train
