// Estimates the peak memory of training before it starts.
#pragma once

#include <cstdint>

#include "model/language_model.h"
#include "train/run_config.h"

namespace mh::train {

// Returns bytes of main memory, including the program: parameters with gradients, moments and bf16 copies; the tensors
// that the layers of `model` (built from run.model; device meta is enough) save for the backward pass of a micro-batch,
// with attention probabilities only on the composed path; and memories. Small models were measured within a third of
// the estimate. Regularisers that observe a forward pass need more.
int64_t memory_estimate(const RunConfig& run, model::LanguageModel& model);

}  // namespace mh::train
