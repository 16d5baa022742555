// Estimates the peak memory of a training run from its configuration.
#pragma once

#include <cstdint>

#include "model/language_model.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the estimated peak main memory of training on a CPU, in bytes. The estimate contains the program, the
// parameters with their gradients, moments and bf16 copies, the tensors that the layers save for the backward pass of a
// micro-batch (attention probabilities only on the composed path), and the Transformer-XL memory. `model`: the model of
// run.model, which may be on the meta device. Measured peaks of small models were within a third of the estimate.
// Regularisers that observe a forward pass use memory that the estimate does not contain. `num_processes`: number of
// processes that train the model together; the estimate is the memory of each process.
int64_t memory_estimate(const RunConfig& run, model::LanguageModel& model, int64_t num_processes = 1);

}  // namespace mh::train
