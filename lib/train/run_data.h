// Opens and checks the shards of a training run before its model is built.
#pragma once

#include <memory>
#include <string>

#include "io/shard.h"
#include "text/tokenizers.h"
#include "train/run_config.h"

namespace mh::train {

struct RunData {
  std::unique_ptr<io::ShardFile> train_shard;
  std::unique_ptr<io::ShardFile> valid_shard;  // validation shard; null without a validation set
  text::Tokenizers tokenizers;
};

// Opens the shards of config.data and completes the configuration: fingerprints, checksums, token counts and absolute
// paths of the shards in [data], and the names of the classes in [model.bert]. Throws Error(usage) without a training
// shard and for a path that is not UTF-8. Throws Error(input) for a shard that is empty or of a kind that the task does
// not read, and for a validation shard with another vocabulary than the training shard.
RunData open_data(RunConfig& config);

// Throws Error(input) about the training shard `shard` if its number of tokens, `num_tokens`, is 0.
void require_tokens(int64_t num_tokens, const std::string& shard);

}  // namespace mh::train
