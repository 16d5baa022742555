// The batches of a run.
#pragma once

#include <memory>

#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/run_config.h"

namespace mh::train {

// Of its training shard, which must outlive them. With train.batch.long_block the rows of examples are of that length
// from the update train.batch.long_from on, and epochs are counted anew from there on; in lengths of training an epoch
// is one of the shorter rows. Errors as of data::Corpus::batches() and task::Task::open().
std::unique_ptr<Batches> batches_of(const RunConfig& run, const io::ShardFile& shard,
                                    const text::Tokenizers& tokenizers);

}  // namespace mh::train
