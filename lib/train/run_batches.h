// Makes the batches of a training run from its configuration, and converts lengths of training to updates when batches
// may not exist yet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/run_config.h"
#include "train/run_data.h"

namespace mh::train {

// Returns the batches of the training shards, which are mixed by data.weights if there are several
// (data/mixed_batches.h). The shards and the tokenizers must outlive the batches. With
// train.batch.long_sequence_length, training on examples has a second phase, which starts at train.batch.long_from:
// rows then have up to long_sequence_length tokens, and the order of the rows starts again with epoch 0. Lengths in
// epochs always refer to epochs of the first phase. Both phases mix shards by the same weights. Throws the errors of
// TrainOptions::check(), task::Task::open() and data::Corpus::batches().
std::unique_ptr<Batches> batches_of(const RunConfig& run, const TrainShards& shards,
                                    const text::Tokenizers& tokenizers);

// Describes a mixture of training shards for the log. `shares`: Batches::shard_shares(), not empty.
std::string describe_shards(const DataOptions& options, const std::vector<double>& shares);

// Converts a length of training to updates. `batches`: null before the data are opened. Without batches, returns 0 for
// a length in epochs and for a length in tokens of sentence pairs, which are unknown. Throws Error(usage) for a length
// in tokens of examples, with or without batches.
int64_t length_to_updates(const Length& length, const RunConfig& run, const Batches* batches);

}  // namespace mh::train
