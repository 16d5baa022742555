// The shards of a run, checked before a model is built.
#pragma once

#include <memory>
#include <string>

#include "io/shard.h"
#include "text/tokenizers.h"
#include "train/run_config.h"

namespace mh::train {

struct RunData {
  std::unique_ptr<io::ShardFile> train;
  std::unique_ptr<io::ShardFile> valid;  // null without a validation set
  text::Tokenizers tokenizers;
};

// Opens the shards of [data] and completes the configuration: fingerprints, checksums and token counts of the shards,
// their absolute paths, and the names of a classifier's classes. Throws Error(usage) without a training shard, and
// Error(input) for a shard that is empty, of another kind or of another vocabulary.
RunData open_data(RunConfig& config);

// Throws Error(input) for a shard without a token to train on.
void require_tokens(int64_t tokens, const std::string& shard);

}  // namespace mh::train
