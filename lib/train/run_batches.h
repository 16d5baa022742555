// Makes the batches of a training run from its configuration, and converts lengths of training to updates when batches
// may not exist yet.
#pragma once

#include <memory>

#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the batches of the training shard. The shard and the tokenizers must outlive the batches. With
// train.batch.long_block, training on examples has a second phase, which starts at train.batch.long_from: rows then
// have up to long_block tokens, and the order of the rows starts again with epoch 0. Lengths in epochs always refer to
// epochs of the first phase. Throws the errors of TrainOptions::check(), task::Task::open() and
// data::Corpus::batches().
std::unique_ptr<Batches> batches_of(const RunConfig& run, const io::ShardFile& shard,
                                    const text::Tokenizers& tokenizers);

// Converts a length of training to updates. `batches`: null before the data are opened. Without batches, returns 0 for
// a length in epochs and for a length in tokens of sentence pairs, which are unknown. Throws Error(usage) for a length
// in tokens of examples, with or without batches.
int64_t length_to_updates(const Length& length, const RunConfig& run, const Batches* batches);

}  // namespace mh::train
