// The dry run: what a configuration would build and train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

struct DryRun {
  int64_t parameters = 0;          // elements of all parameters
  int64_t trained_parameters = 0;  // elements of the parameters that train at some time of the run
  int64_t vocabulary = 0;          // entries of the vocabulary that the model predicts
  int64_t source_vocabulary = 0;   // entries of the encoder's own vocabulary; 0: none
  int64_t tokens_per_update = 0;
  Length length;
  int64_t memory_bytes = 0;                 // memory_estimate()
  int64_t updates = 0;                      // 0: unknown, as for lengths in epochs or tokens without data
  int64_t warmup_updates = 0;               // 0: none, or unknown
  std::optional<double> epochs;             // rounded to hundredths; only with data
  std::optional<int64_t> long_predictions;  // masked words of a long row, if the run takes long rows
};

// Checks the run as training does. Data are needed only if the configuration does not set the size of the vocabulary.
// `from`: the checkpoint of a warm start, or null; must outlive the call. Throws the errors of training, and
// Error(usage) about the option `where` without a vocabulary.
DryRun dry_run(RunConfig run, const io::Checkpoint* from, const std::string& where);

}  // namespace mh::train
