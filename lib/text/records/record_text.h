// Counts the records of a shard and prints records as text or token ids. Each kind of records registers a RecordText.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/file.h"
#include "base/registry.h"
#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

class Tokenizer;

// Counts and prints the records of one kind, for mh-prep info and mh-prep cat.
class RecordText {
 public:
  virtual ~RecordText() = default;
  // Reads the stream to its end and returns the counts that only this kind of records has, by default an empty object.
  // Throws Error(input) for a damaged shard.
  virtual nlohmann::ordered_json count(io::ShardStream& stream) const;
  // Reads the stream to its end and prints its records: as token ids if `as_ids`, otherwise as text. Throws
  // Error(input) for a damaged shard.
  virtual void print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const = 0;
};
// Returns the registry of record texts, by the kind of the records (io/record_kind.h).
Registry<RecordText>& record_texts();

// Reads the whole shard into memory. By default, count() returns "field_tokens", the total length of each field, and
// print() with `as_ids` prints one record per line, with tabs between the fields.
class WholeShardText : public RecordText {
 public:
  nlohmann::ordered_json count(io::ShardStream& stream) const final;
  void print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const final;

 protected:
  // Returns the counts of a shard called `name`.
  virtual nlohmann::ordered_json count_shard(const WholeShard& shard, const std::string& name) const;
  // Prints the records as numbers.
  virtual void print_ids(const WholeShard& shard, ByteSink& sink) const;
  // Prints the records of a shard called `name` as text.
  virtual void print_text(const WholeShard& shard, const std::string& name, const Tokenizer& tokenizer,
                          ByteSink& sink) const = 0;
};

// Returns the tokens as ids separated by spaces.
std::string text_of_ids(std::span<const int32_t> tokens);
// Returns the tokens as ids separated by spaces if `as_ids`, otherwise as text without a final line end.
std::string text_of_tokens(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool as_ids);

// Calls RecordText::count() for the kind of the shard. Reads a shard of an unknown kind to its end and returns an empty
// object.
nlohmann::ordered_json count_records(io::ShardStream& stream);
// Calls RecordText::print() for the kind of the shard. Throws Error(input) for an unknown kind.
void show_records(io::ShardStream& stream, bool as_ids, ByteSink& sink);

}  // namespace mh::text
