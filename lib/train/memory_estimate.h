// What a training holds in memory at most, before it is tried.
#pragma once

#include <cstdint>

#include "model/language_model.h"
#include "train/run_config.h"

namespace mh::train {

// Bytes of main memory, the program's own included: parameters with gradients, moments and bf16 copies; what the layers
// of `model` (of run.model; device meta does) keep of a micro-batch for the backward pass, attention probabilities only
// where the composed path is taken; memories. Within a third of what small models were seen to hold; regularisers that
// look at a forward pass come on top.
int64_t memory_estimate(const RunConfig& run, model::LanguageModel& model);

}  // namespace mh::train
