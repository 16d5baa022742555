// The vocabularies of a model or of data: of what is written, and of what is read in front of that where it has one of
// its own.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "text/tokenizer.h"

namespace mh::text {

struct Tokenizers {
  std::unique_ptr<Tokenizer> target;
  std::unique_ptr<Tokenizer> source;  // null: the target's serves both sides, or there is one side only

  const Tokenizer& of_source() const { return source != nullptr ? *source : *target; }
  int64_t source_size() const { return source != nullptr ? source->size() : 0; }
};

// Of a shard's header, checked to be as large as it says, and to fit into a checkpoint of the model that is trained on
// it. Error(input).
Tokenizers tokenizers_of(const io::ShardHeader& header, const std::string& name);
// Of a checkpoint of ours, checked against the fingerprints beside them. Error(input).
Tokenizers tokenizers_of(const io::Checkpoint& checkpoint);
// Returns the header of a shard of text in this vocabulary.
io::ShardHeader header_of(const Tokenizer& tokenizer);
// As entries of a checkpoint.
io::Metadata entries_of(const Tokenizers& tokenizers);

// Refuses a shard of other vocabularies than these, on either side, with both fingerprints and the way out. `owner`:
// whose they are, such as a model's name. Error(input).
void require_vocabularies(const io::ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner);

// Refuses a shard of another vocabulary than that of a tokenizer at hand, whose entries must be as many as the header
// says: a token is then an entry of it.
void require_vocabulary(const io::ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner, io::Side side = io::Side::target);

}  // namespace mh::text
