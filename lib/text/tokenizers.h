// The tokenizers of a model or a shard: one for the target text, and one for the source text of a translation if the
// source has its own vocabulary. Functions read tokenizers from shards and checkpoints, write tokenizers to them, and
// check that a shard has the vocabularies of a model.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "text/tokenizer.h"

namespace mh::text {

struct Tokenizers {
  std::unique_ptr<Tokenizer> target;
  std::unique_ptr<Tokenizer> source;  // null: the source uses `target`, or there is no source text

  const Tokenizer& source_or_target() const { return source != nullptr ? *source : *target; }
  // Returns the size of the source vocabulary; 0 if the source has no vocabulary of its own.
  int64_t source_size() const { return source != nullptr ? source->size() : 0; }
  // Returns whether there are two vocabularies that have the same piece for each token.
  bool have_same_entries() const;
};

// Returns the tokenizers of a file or folder that load_tokenizer() reads: both vocabularies of a checkpoint, or of the
// folder of a Marian model, and otherwise one vocabulary as the target. Throws Error(input).
Tokenizers load_tokenizers(const std::string& path);
// Returns the tokenizers in a shard's header; `name` is the shard's name in messages. Throws Error(input) if their
// fingerprints or sizes differ from the header's, or if the tokenizers are too large for the metadata of a checkpoint.
Tokenizers tokenizers_of(const io::ShardHeader& header, const std::string& name);
// Returns the tokenizers in a checkpoint. Throws Error(input) if the checkpoint has an unknown format, or if a
// tokenizer is damaged or does not match its stored fingerprint.
Tokenizers tokenizers_of(const io::Checkpoint& checkpoint);
// Returns a shard header with `tokenizer` as the target (or only) vocabulary.
io::ShardHeader header_of(const Tokenizer& tokenizer);
// Returns the checkpoint metadata that stores the tokenizers and their fingerprints.
io::Metadata metadata_of(const Tokenizers& tokenizers);

// Throws Error(input), with both fingerprints and advice, if the shard `name` and `tokenizers` have different source or
// target vocabularies. `owner` names the owner of `tokenizers` in the message, such as a model.
void require_vocabularies(const io::ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner);

// Throws Error(input) if the vocabulary of `side` (source or target) of the shard `name` differs from `tokenizer`, or
// if the vocabulary size in the header differs from tokenizer.size(); thus every token of the shard is a vocabulary
// entry. `owner` names the owner of `tokenizer` in the message.
void require_vocabulary(const io::ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner, io::Side side = io::Side::target);

}  // namespace mh::text
