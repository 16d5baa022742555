// The arithmetic mean of models that are the same but for their numbers, such as the last checkpoints of a run. Sums
// are taken in double. Statistics that no optimiser changes (running means of a gate's batch norm) are averaged too,
// and so is what was drawn once.
#pragma once

#include <memory>
#include <vector>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::analysis {

// Error(input), naming both files and what differs, for another configuration of the model ([model] and [attention]) or
// another vocabulary than the first's.
void require_alike(const std::vector<const io::Checkpoint*>& checkpoints);

// The first model, on the CPU, with the mean of all; what load_model() refuses is refused of each. Training states are
// left out. `checkpoints` are at least one.
model::LoadedModel average(const std::vector<const io::Checkpoint*>& checkpoints);

}  // namespace mh::analysis
