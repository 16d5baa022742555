// Records of a shard counted, and shown as text or numbers, where they are neither lines nor pairs of lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/file.h"
#include "io/shard.h"

namespace mh::text {

class Tokenizer;

// Whether count_records() and show_records() take shards of this kind.
bool has_records(const io::ShardHeader& header);

// The tokens as numbers with blanks between, or as text without the end of its line.
std::string shown(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool ids);

// Reads the stream to its end. Documents: "documents" and "sentences". Other kinds: "field_tokens", the numbers in each
// field; of questions also "paragraphs", "answers", "missing_answers" and "impossible". Error(input) for a damaged
// shard.
nlohmann::ordered_json count_records(io::ShardStream& stream);

// Reads the stream to its end and writes it. Documents: a sentence a line, an empty line between documents. Other
// kinds: a record a line, tabs between its fields; of questions id, question and paragraph. `ids`: every run as
// numbers, one of documents a line, empty runs too. Error(input) for a damaged shard.
void show_records(io::ShardStream& stream, bool ids, ByteSink& sink);

}  // namespace mh::text
