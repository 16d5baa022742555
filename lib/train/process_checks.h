// Checks whether several processes can train a model.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "nn/parameter.h"
#include "train/run_config.h"

namespace mh::train {

// Returns whether a stage of the model has running statistics of batches.
bool has_running_statistics(const nn::ParameterList& parameters);

// Throws Error(usage) for options that a job of `num_processes` processes on `device` does not support.
void check_processes(const RunConfig& run, int64_t num_processes, at::Device device);

}  // namespace mh::train
