// The tokenizers of a model or a shard: the target's, and the source's if it differs. Reads them from headers, writes
// them to headers, and checks that a shard has the same vocabularies.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "text/tokenizer.h"

namespace mh::text {

struct Tokenizers {
  std::unique_ptr<Tokenizer> target;
  std::unique_ptr<Tokenizer> source;  // null: both sides share `target`, or there is only one side

  const Tokenizer& of_source() const { return source != nullptr ? *source : *target; }
  int64_t source_size() const { return source != nullptr ? source->size() : 0; }
};

// Returns the tokenizers in a shard's header. Throws Error(input) unless their sizes equal the sizes in the header and
// the metadata of a checkpoint can hold them.
Tokenizers tokenizers_of(const io::ShardHeader& header, const std::string& name);
// Returns the tokenizers in a checkpoint. Throws Error(input) unless they match the stored fingerprints.
Tokenizers tokenizers_of(const io::Checkpoint& checkpoint);
// Returns a shard header with this vocabulary on the target side.
io::ShardHeader header_of(const Tokenizer& tokenizer);
// Returns the tokenizers as metadata of a checkpoint.
io::Metadata entries_of(const Tokenizers& tokenizers);

// Throws Error(input), with both fingerprints and advice, if the vocabulary of either side of a shard is not
// `tokenizers`. `owner` names the owner of the tokenizers, such as a model.
void require_vocabularies(const io::ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner);

// Throws Error(input) if one side of a shard has another vocabulary, or if the size in its header is not the size of
// the tokenizer, so that every token of the shard is an entry.
void require_vocabulary(const io::ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner, io::Side side = io::Side::target);

}  // namespace mh::text
