// The vocabularies of a model or of data: of what is written, and of what is read in front of that where it has one of
// its own.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "io/tokenizer.h"

namespace mh::io {

struct Tokenizers {
  std::unique_ptr<Tokenizer> target;
  std::unique_ptr<Tokenizer> source;  // null: the target's serves both sides, or there is one side only

  const Tokenizer& of_source() const { return source != nullptr ? *source : *target; }
  int64_t source_size() const { return source != nullptr ? source->size() : 0; }
};

// Of a shard's header, checked to be as large as it says, and to fit into a checkpoint of the model that is trained on
// it. Error(input).
Tokenizers tokenizers_of(const ShardHeader& header, const std::string& name);
// Of a checkpoint of ours, checked against the fingerprints beside them. Error(input).
Tokenizers tokenizers_of(const Checkpoint& checkpoint);
// Returns the header of a shard of text in this vocabulary.
ShardHeader header_of(const Tokenizer& tokenizer);
// As entries of a checkpoint.
Metadata entries_of(const Tokenizers& tokenizers);

// Refuses a shard of other vocabularies than these, on either side, with both fingerprints and the way out. `owner`:
// whose they are, such as a model's name. Error(input).
void require_vocabularies(const ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner);

}  // namespace mh::io
