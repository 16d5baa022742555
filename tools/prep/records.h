// What mh-prep info and cat show of shards whose records are neither lines nor pairs of lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/file.h"
#include "io/shard.h"

namespace mh::text {
class Tokenizer;
}

namespace mh::prep {

// The tokens as numbers, or as text without the end of its line.
std::string shown(std::span<const int32_t> tokens, const text::Tokenizer& tokenizer, bool ids);

// Reads the stream, of any of these kinds, to its end. How many numbers each field holds, and how many documents there
// are, or paragraphs, answers and impossible questions.
nlohmann::ordered_json count_records(io::ShardStream& stream);
// Documents: a sentence a line, an empty line between documents. Others: a record a line, tabs between its fields.
// Questions: id, question and paragraph. Numbers: every run, empty ones too, a line of documents.
void show_records(io::ShardStream& stream, bool ids, ByteSink& sink);

}  // namespace mh::prep
