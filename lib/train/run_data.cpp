#include "train/run_data.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Makes a path absolute, since a resume may be started in another working directory.
void make_absolute(std::string& path) {
  path = std::filesystem::absolute(path).lexically_normal().string();
  if (find_invalid_utf8(path) != std::string::npos)
    refuse_usage(path, "a path in UTF-8, since the configuration of the run stores the path",
                 "a path that is not valid UTF-8", "rename the file or folder, or use a symbolic link to the shard");
}

}  // namespace

std::unique_ptr<io::ShardFile> open_shard(const std::string& path, const char* place) {
  if (path == "-")
    refuse_input(place, "a regular file, since training reads shards in random order", "-, standard input",
                 "write the shard to a file first");
  if (std::error_code error; !std::filesystem::exists(path, error) && !error)
    refuse_input(str(place, ", ", path), "a file to read", "no such file", "check the name");
  return std::make_unique<io::ShardFile>(path);
}

void require_tokens(int64_t num_tokens, const std::string& shard) {
  if (num_tokens == 0)
    refuse_input(shard, "at least one token to train on", "0 tokens", "make the shard from a text that is not empty");
}

TrainShards open_train_shards(const DataOptions& options, const char* kind, text::Tokenizers& tokenizers) {
  TrainShards shards;
  for (const std::string& path : options.train_paths) {
    shards.push_back(open_shard(path, kTrainPathPlace));
    const io::ShardFile& shard = *shards.back();
    io::require_kind(shard.header(), path, kind);
    if (shards.size() == 1) tokenizers = text::tokenizers_of(shard.header(), path);
    else text::require_vocabularies(shard.header(), path, tokenizers, options.train_paths[0]);
    require_tokens(static_cast<int64_t>(shard.counts().num_tokens), path);
  }
  return shards;
}

std::string checksum_of_shards(const TrainShards& shards) {
  std::string checksums;
  for (const auto& shard : shards) checksums += hex64(shard->content_hash());
  return shards.size() == 1 ? checksums : hex64(stable_hash(checksums));
}

RunData open_data(RunConfig& config) {
  DataOptions& options = config.data;
  RunData data;
  if (options.train_paths.empty())
    refuse_usage("--train", "a shard to train on", "no --train", "pass --train SHARD; mh-prep makes shards");
  const char* kind = config.task().record_kind();
  data.train_shards = open_train_shards(options, kind, data.tokenizers);
  const io::ShardHeader& first_header = data.train_shards[0]->header();
  config.task().set_shard_options(config.model.model, first_header, options.train_paths[0]);
  if (!options.valid_path.empty()) {
    data.valid_shard = open_shard(options.valid_path, kValidPathPlace);
    io::require_kind(data.valid_shard->header(), options.valid_path, kind);
    text::require_vocabularies(data.valid_shard->header(), options.valid_path, data.tokenizers, options.train_paths[0]);
    options.valid_tokens = static_cast<int64_t>(data.valid_shard->counts().num_tokens);
    if (options.valid_tokens == 0)
      refuse_input(options.valid_path, "at least one token to validate on", "0 tokens", "use another validation shard");
  }
  options.vocabulary_fingerprint = first_header.fingerprint;
  options.source_vocabulary_fingerprint = first_header.source_fingerprint;
  options.train_tokens = 0;
  for (const auto& shard : data.train_shards) options.train_tokens += static_cast<int64_t>(shard->counts().num_tokens);
  options.train_checksum = checksum_of_shards(data.train_shards);
  options.valid_checksum = data.valid_shard != nullptr ? hex64(data.valid_shard->content_hash()) : "";
  if (options.train_paths.size() == 1 && !options.weights.empty()) {
    log_info("data.weights has no effect, since there is one training shard");
    options.weights.clear();
  }
  for (std::string& path : options.train_paths) make_absolute(path);
  if (!options.valid_path.empty()) make_absolute(options.valid_path);
  return data;
}

}  // namespace mh::train
