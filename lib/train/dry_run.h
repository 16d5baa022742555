// What a configuration would build and train, without training it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

struct DryRun {
  int64_t parameters = 0;          // numbers in all parameters
  int64_t trained_parameters = 0;  // numbers in those that train at some time
  int64_t vocabulary = 0;          // of what the model predicts
  int64_t source_vocabulary = 0;   // of an encoder with a vocabulary of its own; 0: none
  int64_t tokens_per_update = 0;
  Length length;
  int64_t memory_bytes = 0;                 // memory_estimate()
  int64_t updates = 0;                      // 0: not known, as lengths in epochs or tokens are without data
  int64_t warmup_updates = 0;               // 0: none, or not known
  std::optional<double> epochs;             // with data, to hundredths
  std::optional<int64_t> long_predictions;  // masked words of a long row, where a run takes long rows
};

// Checks the run as a training would, but for what it lacks: data are only needed where the configuration does not say
// how large the vocabulary is. `from`: the checkpoint that the run begins with, or null; must outlive the call. Errors
// are those of a training; Error(usage), about the option `where`, without a vocabulary.
DryRun dry_run(RunConfig run, const io::Checkpoint* from, const std::string& where);

}  // namespace mh::train
