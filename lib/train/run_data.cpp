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
  if (options.train.empty())
    throw Error(Exit::usage, Problem{"--train", "a shard to train on", "no --train", "make a shard with mh-prep"});
  data.train = std::make_unique<io::ShardFile>(options.train);
  const char* kind = config.task().record_kind();
  io::require_kind(data.train->header(), options.train, kind);
  data.tokenizers = text::tokenizers_of(data.train->header(), options.train);
  require_tokens(static_cast<int64_t>(data.train->counts().num_tokens), options.train);
  config.task().set_shard_options(config.model.model, data.train->header(), options.train);
  if (!options.valid.empty()) {
    data.valid = std::make_unique<io::ShardFile>(options.valid);
    io::require_kind(data.valid->header(), options.valid, kind);
    text::require_vocabularies(data.valid->header(), options.valid, data.tokenizers, options.train);
    options.valid_tokens = static_cast<int64_t>(data.valid->counts().num_tokens);
    if (options.valid_tokens == 0)
      throw Error(Exit::input, Problem{options.valid, "at least one token to validate on", "0 tokens",
                                       "use another validation shard"});
  }
  options.vocabulary = data.train->header().fingerprint;
  options.source_vocabulary = data.train->header().source_fingerprint;
  options.train_tokens = static_cast<int64_t>(data.train->counts().num_tokens);
  options.train_checksum = hex64(data.train->content_hash());
  options.valid_checksum = data.valid != nullptr ? hex64(data.valid->content_hash()) : "";
  for (std::string* path : {&options.train, &options.valid})
    if (!path->empty()) make_absolute(*path);
  return data;
}

}  // namespace mh::train
