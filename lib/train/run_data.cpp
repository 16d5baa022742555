#include "train/run_data.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

// A resume may be called from another folder.
void make_absolute(std::string& path) {
  path = std::filesystem::absolute(path).lexically_normal().string();
  if (find_invalid_utf8(path) != std::string::npos)
    throw Error(Exit::usage, Problem{path, "a path in UTF-8, for the configuration of the run",
                                     "other bytes in the name of a folder", "rename the folder, or use a link to it"});
}

}  // namespace

void require_tokens(int64_t tokens, const std::string& shard) {
  if (tokens == 0)
    throw Error(Exit::input, Problem{shard, "at least one token to train on", "0 tokens",
                                     "make the shard from a text that is not empty"});
}

RunData open_data(RunConfig& config) {
  DataOptions& d = config.data;
  RunData data;
  if (d.train.empty())
    throw Error(Exit::usage, Problem{"--train", "a shard to train on", "none", "make one with mh-prep lm"});
  data.train = std::make_unique<io::ShardFile>(d.train);
  const char* kind = config.task().record_kind();
  io::require_kind(data.train->header(), d.train, kind);
  data.tokenizers = text::tokenizers_of(data.train->header(), d.train);
  require_tokens(static_cast<int64_t>(data.train->counts().tokens), d.train);
  config.task().complete(config.model.model, data.train->header(), d.train);
  if (!d.valid.empty()) {
    data.valid = std::make_unique<io::ShardFile>(d.valid);
    io::require_kind(data.valid->header(), d.valid, kind);
    text::require_vocabularies(data.valid->header(), d.valid, data.tokenizers, d.train);
    d.valid_tokens = static_cast<int64_t>(data.valid->counts().tokens);
    if (d.valid_tokens == 0) throw Error(Exit::input, Problem{d.valid, "tokens to validate on", "none", ""});
  }
  d.vocabulary = data.train->header().fingerprint;
  d.source_vocabulary = data.train->header().source_fingerprint;
  d.train_tokens = static_cast<int64_t>(data.train->counts().tokens);
  d.train_checksum = hex64(data.train->content_hash());
  d.valid_checksum = data.valid != nullptr ? hex64(data.valid->content_hash()) : "";
  for (std::string* path : {&d.train, &d.valid})
    if (!path->empty()) make_absolute(*path);
  return data;
}

}  // namespace mh::train
