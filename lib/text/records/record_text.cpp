#include "text/records/record_text.h"

#include "base/json_types.h"
#include "io/record_kind.h"
#include "io/shard_format.h"
#include "text/tokenizer.h"

namespace mh::text {

using nlohmann::ordered_json;

Registry<RecordText>& record_texts() {
  static Registry<RecordText> registry("record text");
  return registry;
}

namespace {

// Reads the stream to its end, which verifies its checksums, and returns an empty object.
ordered_json read_without_counting(io::ShardStream& stream) {
  std::vector<int32_t> tokens(io::kFrameTokens);
  while (stream.read(tokens) > 0) {
  }
  return ordered_json::object();
}

}  // namespace

ordered_json RecordText::count(io::ShardStream& stream) const { return read_without_counting(stream); }

std::string text_of_ids(std::span<const int32_t> tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += (i > 0 ? " " : "") + std::to_string(tokens[i]);
  return text;
}

std::string text_of_tokens(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool as_ids) {
  if (as_ids) return text_of_ids(tokens);
  return tokenizer.decode(
      !tokens.empty() && tokens.back() == tokenizer.end_of_line_id() ? tokens.first(tokens.size() - 1) : tokens);
}

ordered_json WholeShardText::count(io::ShardStream& stream) const {
  return count_shard(read_whole_shard(stream, stream.header().kind), stream.name());
}

void WholeShardText::print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const {
  const WholeShard shard = read_whole_shard(stream, stream.header().kind);
  if (as_ids) print_ids(shard, sink);
  else print_text(shard, stream.name(), *parse_tokenizer(shard.header.tokenizer, stream.name()), sink);
}

ordered_json WholeShardText::count_shard(const WholeShard& shard, const std::string&) const {
  ordered_json counts;
  for (size_t field = 0; field < shard.header.field_names.size(); ++field) {
    uint64_t num_tokens = 0;
    for (size_t i = 0; i < shard.size(); ++i) num_tokens += shard.sequence(i, field).size();
    counts["field_tokens"][shard.header.field_names[field]] = num_tokens;
  }
  return counts;
}

void WholeShardText::print_ids(const WholeShard& shard, ByteSink& sink) const {
  for (size_t i = 0; i < shard.size(); ++i) {
    for (size_t field = 0; field < shard.header.field_names.size(); ++field)
      sink.write((field > 0 ? "\t" : "") + text_of_ids(shard.sequence(i, field)));
    sink.write("\n");
  }
}

ordered_json count_records(io::ShardStream& stream) {
  const std::string& kind = stream.header().kind;
  if (io::record_kind(kind) == nullptr) return read_without_counting(stream);
  return record_texts().make(kind, stream.name())->count(stream);
}

void show_records(io::ShardStream& stream, bool as_ids, ByteSink& sink) {
  const std::string& kind = stream.header().kind;
  if (io::record_kind(kind) == nullptr) io::refuse_unknown_kind(kind, stream.name());
  record_texts().make(kind, stream.name())->print(stream, as_ids, sink);
}

}  // namespace mh::text
