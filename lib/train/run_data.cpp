#include "train/run_data.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Makes a path absolute, since a resume may be started in another working directory.
void make_absolute(std::string& path) {
  path = std::filesystem::absolute(path).lexically_normal().string();
  if (find_invalid_utf8(path) != std::string::npos)
    throw Error(Exit::usage, Problem{path, "a path in UTF-8, since the configuration of the run stores the path",
                                     "a path that is not valid UTF-8",
                                     "rename the file or folder, or use a symbolic link to the shard"});
}

}  // namespace

void require_tokens(int64_t num_tokens, const std::string& shard) {
  if (num_tokens == 0)
    throw Error(Exit::input, Problem{shard, "at least one token to train on", "0 tokens",
                                     "make the shard from a text that is not empty"});
}

RunData open_data(RunConfig& config) {
  DataOptions& options = config.data;
  RunData data;
  if (options.train_path.empty())
    throw Error(Exit::usage, Problem{"--train", "a shard to train on", "no --train", "make a shard with mh-prep"});
  data.train_shard = std::make_unique<io::ShardFile>(options.train_path);
  const char* kind = config.task().record_kind();
  io::require_kind(data.train_shard->header(), options.train_path, kind);
  data.tokenizers = text::tokenizers_of(data.train_shard->header(), options.train_path);
  require_tokens(static_cast<int64_t>(data.train_shard->counts().num_tokens), options.train_path);
  config.task().set_shard_options(config.model.model, data.train_shard->header(), options.train_path);
  if (!options.valid_path.empty()) {
    data.valid_shard = std::make_unique<io::ShardFile>(options.valid_path);
    io::require_kind(data.valid_shard->header(), options.valid_path, kind);
    text::require_vocabularies(data.valid_shard->header(), options.valid_path, data.tokenizers, options.train_path);
    options.valid_tokens = static_cast<int64_t>(data.valid_shard->counts().num_tokens);
    if (options.valid_tokens == 0)
      throw Error(Exit::input, Problem{options.valid_path, "at least one token to validate on", "0 tokens",
                                       "use another validation shard"});
  }
  options.vocabulary_fingerprint = data.train_shard->header().fingerprint;
  options.source_vocabulary_fingerprint = data.train_shard->header().source_fingerprint;
  options.train_tokens = static_cast<int64_t>(data.train_shard->counts().num_tokens);
  options.train_checksum = hex64(data.train_shard->content_hash());
  options.valid_checksum = data.valid_shard != nullptr ? hex64(data.valid_shard->content_hash()) : "";
  for (std::string* path : {&options.train_path, &options.valid_path})
    if (!path->empty()) make_absolute(*path);
  return data;
}

}  // namespace mh::train
