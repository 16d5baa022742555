// Opens and checks the shards of a training run before its model is built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/tokenizers.h"
#include "train/run_config.h"

namespace mh::train {

// The training shards of a run, in the order of data.train.
using TrainShards = std::vector<std::unique_ptr<io::ShardFile>>;

struct RunData {
  TrainShards train_shards;                    // at least one
  std::unique_ptr<io::ShardFile> valid_shard;  // validation shard; null without a validation set
  text::Tokenizers tokenizers;
};

// Opens the shards of config.data and completes the configuration: fingerprints, checksums, token counts and absolute
// paths of the shards in [data], and the names of the classes in [model.bert]. Removes the weight of a single shard,
// which has no effect. Throws Error(usage) without a training shard and for a path that is not UTF-8. Throws
// Error(input) for a shard that is empty or of a kind that the task does not read, and for a shard with another
// vocabulary than the first training shard.
RunData open_data(RunConfig& config);

// Opens a shard of the run. Throws Error(input) for a missing file, and for standard input, since training reads shards
// in random order. `place`: the key and the option that set the path, for these errors.
std::unique_ptr<io::ShardFile> open_shard(const std::string& path, const char* place);
inline constexpr const char *kTrainPathPlace = "data.train (option --train)",
                            *kValidPathPlace = "data.valid (option --valid)";

// Opens the training shards of `options`. Sets `tokenizers` to the tokenizers of the first shard. Throws Error(input)
// for a shard of another kind than `kind`, without tokens, or with another vocabulary than the first.
TrainShards open_train_shards(const DataOptions& options, const char* kind, text::Tokenizers& tokenizers);

// Returns the checksum of the tokens of the training shards, which depends on the order of the shards; for one shard,
// the checksum of this shard.
std::string checksum_of_shards(const TrainShards& shards);

// Throws Error(input) about the training shard `shard` if its number of tokens, `num_tokens`, is 0.
void require_tokens(int64_t num_tokens, const std::string& shard);

}  // namespace mh::train
