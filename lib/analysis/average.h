// Checkpoint averaging: the arithmetic mean of the parameters of models with the same configuration, such as the last
// checkpoints of a run. Sums are accumulated in fp64. Parameters that no optimiser updates are averaged as well:
// running statistics (the batch norm of a gate) and parameters that keep their random initial values.
#pragma once

#include <memory>
#include <vector>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::analysis {

// Throws Error(input) if a checkpoint differs from the first one in its model configuration ([model] and [attention])
// or its vocabularies. The error names both files and the differences.
void require_same_config(const std::vector<const io::Checkpoint*>& checkpoints);

// Returns the model of the first checkpoint, on the CPU, with the mean of the parameters of all `checkpoints`, of which
// there must be at least one. Ignores their training states. Throws like require_same_config() and model::load_model().
model::LoadedModel average_checkpoints(const std::vector<const io::Checkpoint*>& checkpoints);

}  // namespace mh::analysis
