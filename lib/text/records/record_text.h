// Counts the records of a shard and prints records as text or token ids, for all kinds of shards except language-model
// and translation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/file.h"
#include "io/shard.h"

namespace mh::text {

class Tokenizer;

// Returns whether count_records() and show_records() support shards of this kind.
bool supports_records(const io::ShardHeader& header);

// Returns the tokens as ids separated by spaces if `ids`, otherwise as text without a final line end.
std::string text_of_tokens(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool ids);

// Reads the stream to its end and returns counts. Documents: "documents" and "sentences". Other kinds: "field_tokens",
// the number of values in each field; shards of questions also "paragraphs", "answers", "missing_answers" and
// "impossible". Throws Error(input) for a damaged shard.
nlohmann::ordered_json count_records(io::ShardStream& stream);

// Reads the stream to its end and writes its records. Documents: one sentence per line, an empty line between
// documents. Other kinds: one record per line, with tabs between the fields; of a question the fields id, question and
// paragraph. `ids`: writes every field as numbers, and of documents one sequence per line, empty sequences included.
// Throws Error(input) for a damaged shard.
void show_records(io::ShardStream& stream, bool ids, ByteSink& sink);

}  // namespace mh::text
