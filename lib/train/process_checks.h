// Checks whether several processes can train a model.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "model/language_model.h"
#include "train/run_config.h"

namespace mh::train {

// Returns whether a stage of the model has running statistics of batches.
bool has_running_statistics(const nn::ParameterList& parameters);

// Throws Error(usage) for options and models that a job of `num_processes` processes on `device` does not support.
// `rows_per_update`: number of rows in an update of a text; 0: the corpus is not a text, or the number is unknown.
void check_processes(const RunConfig& run, model::LanguageModel& model, int64_t rows_per_update, int64_t num_processes,
                     at::Device device);

}  // namespace mh::train
