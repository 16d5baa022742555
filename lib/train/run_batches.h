// The batches of a run.
#pragma once

#include <memory>

#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/run_config.h"

namespace mh::train {

// Returns the batches of the training shard, which must outlive them. With train.batch.long_block, rows of examples
// have that length from update train.batch.long_from on, and epochs start again from 0 there; in lengths of training,
// an epoch is one of the shorter rows. Throws the errors of data::Corpus::batches() and task::Task::open().
std::unique_ptr<Batches> batches_of(const RunConfig& run, const io::ShardFile& shard,
                                    const text::Tokenizers& tokenizers);

}  // namespace mh::train
