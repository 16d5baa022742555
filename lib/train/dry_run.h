// Dry run: reports the size of the model and the length of the training that a configuration describes, without
// training.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "io/checkpoint.h"
#include "train/run_config.h"

namespace mh::train {

struct DryRunReport {
  int64_t num_parameters = 0;  // number of elements of the parameters that can be trained
  // Number of elements of the parameters that train.trainable selects and that no parameter group freezes throughout
  // training.
  int64_t num_trained_parameters = 0;
  int64_t vocabulary_size = 0;         // size of the vocabulary that the model predicts
  int64_t source_vocabulary_size = 0;  // size of the separate vocabulary of the encoder; 0: no separate vocabulary
  int64_t tokens_per_update = 0;       // maximum number of tokens in an update, padding included
  Length length;                       // train.length
  int64_t memory_bytes = 0;            // estimate of the peak main memory of a process (memory_estimate())
  int64_t num_updates = 0;             // length of training in updates; 0: train.length is 0, or unknown without data
  int64_t num_warmup_updates = 0;      // length of the warm-up in updates; 0: no warm-up, or unknown
  std::optional<double>
      num_epochs;             // length of training in epochs, rounded to hundredths; nullopt without data or length
  int64_t num_processes = 1;  // number of processes that train the model together
  // Number of rows of an update in a process, rounded up: the maximum over the processes for a text, the mean for
  // examples, which processes share by their lengths. 0 for sentence pairs and sentences of a text.
  int64_t rows_per_process = 0;
  // Mean number of sentence pairs of an update in a process, over an epoch, rounded to hundredths; nullopt for other
  // corpora, and without data.
  std::optional<double> mean_rows_per_process;
  int64_t bytes_sent_per_update = 0;  // bytes that each process sends per update to sum gradients and exchange weights
  // Maximum number of predicted tokens in a row of train.batch.long_sequence_length tokens; nullopt without such rows,
  // or if the task has no maximum.
  std::optional<int64_t> max_long_row_predictions;
  nlohmann::ordered_json expected_values;  // Procedure::expected_values() of all procedures; null: none
};

// Checks a configuration as training by `num_processes` processes would, and reports the model and the training that
// the configuration describes. `checkpoint`: checkpoint of a warm start, or null. A training shard is required only if
// neither the configuration nor `checkpoint` sets the size of the vocabulary. Throws the errors of training, and
// Error(usage) about the option `vocabulary_option` if the size of the vocabulary is unknown.
DryRunReport dry_run(RunConfig run, const io::Checkpoint* checkpoint, const std::string& vocabulary_option,
                     int64_t num_processes = 1);

}  // namespace mh::train
