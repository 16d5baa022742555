// Counts the records of a shard and prints them as text or numbers, for all kinds except lines and pairs of lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/file.h"
#include "io/shard.h"

namespace mh::text {

class Tokenizer;

// Returns whether count_records() and show_records() support shards of this kind.
bool has_records(const io::ShardHeader& header);

// Returns the tokens as numbers separated by spaces (`ids`), or as text without a final line end.
std::string text_of_tokens(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool ids);

// Reads the stream to its end and returns counts. Documents: "documents" and "sentences". Other kinds: "field_tokens",
// the count of numbers in each field; questions also "paragraphs", "answers", "missing_answers" and "impossible".
// Throws Error(input) for a damaged shard.
nlohmann::ordered_json count_records(io::ShardStream& stream);

// Reads the stream to its end and writes its records. Documents: one sentence per line, an empty line between
// documents. Other kinds: one record per line, tabs between its fields; for questions id, question and paragraph.
// `ids`: writes all sequences as numbers, empty ones included, for documents one per line. Throws Error(input) for a
// damaged shard.
void show_records(io::ShardStream& stream, bool ids, ByteSink& sink);

}  // namespace mh::text
