// The vocabularies of a model or of data: that of the target, and that of the source if it has its own.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "text/tokenizer.h"

namespace mh::text {

struct Tokenizers {
  std::unique_ptr<Tokenizer> target;
  std::unique_ptr<Tokenizer> source;  // null: the target's vocabulary serves both sides, or there is only one side

  const Tokenizer& of_source() const { return source != nullptr ? *source : *target; }
  int64_t source_size() const { return source != nullptr ? source->size() : 0; }
};

// Returns the tokenizers in a shard's header. Throws Error(input) unless their sizes are those in the header and they
// fit into the checkpoint of a model.
Tokenizers tokenizers_of(const io::ShardHeader& header, const std::string& name);
// Returns the tokenizers in our checkpoint. Throws Error(input) unless they match the stored fingerprints.
Tokenizers tokenizers_of(const io::Checkpoint& checkpoint);
// Returns the header of a shard of text in this vocabulary.
io::ShardHeader header_of(const Tokenizer& tokenizer);
// Returns the tokenizers as entries of a checkpoint.
io::Metadata entries_of(const Tokenizers& tokenizers);

// Throws Error(input), with both fingerprints and advice, for a shard with other vocabularies on either side. `owner`:
// owner of the tokenizers, such as a model's name.
void require_vocabularies(const io::ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner);

// Throws Error(input) for a shard with another vocabulary, or another number of entries than its header states, so that
// every token is an entry.
void require_vocabulary(const io::ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner, io::Side side = io::Side::target);

}  // namespace mh::text
