#include "text/records/record_text.h"

#include "base/json_types.h"
#include "io/record_kind.h"
#include "text/records/classification/examples.h"
#include "text/records/questions/records.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

bool supports_records(const ShardHeader& header) {
  return header.kind != kTextKind && header.kind != kPairsKind && record_kind(header.kind) != nullptr;
}

std::string text_of_tokens(std::span<const int32_t> tokens, const Tokenizer& tokenizer, bool ids) {
  if (!ids)
    return tokenizer.decode(
        !tokens.empty() && tokens.back() == tokenizer.end_of_line() ? tokens.first(tokens.size() - 1) : tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += (i > 0 ? " " : "") + std::to_string(tokens[i]);
  return text;
}

namespace {

ordered_json count_questions(const WholeShard& shard, const std::string& name) {
  uint64_t paragraphs = 0, answers = 0, missing = 0, impossible = 0;
  std::string text;
  for (size_t i = 0; i < shard.size(); ++i) {
    QuestionRecord record = question_record(shard, i, name);
    paragraphs += i == 0 || record.text != text ? 1 : 0;
    text = std::move(record.text);
    answers += record.answers.size();
    for (const GoldAnswer& answer : record.answers) missing += answer.byte_range ? 0 : 1;
    impossible += record.impossible ? 1 : 0;
  }
  return {{"paragraphs", paragraphs}, {"answers", answers}, {"missing_answers", missing}, {"impossible", impossible}};
}

void show_questions(const WholeShard& shard, const Tokenizer& tokenizer, const std::string& name, ByteSink& sink) {
  for (size_t i = 0; i < shard.size(); ++i) {
    const QuestionRecord record = question_record(shard, i, name);
    sink.write(escape_piece(record.id) + "\t" + tokenizer.decode(record.question) + "\t" +
               tokenizer.decode(record.context) + "\n");
  }
}

}  // namespace

ordered_json count_records(ShardStream& stream) {
  const WholeShard shard = read_whole_shard(stream, stream.header().kind);
  const auto& fields = shard.header.fields;
  std::vector<uint64_t> field_tokens(fields.size());
  uint64_t empty = 0;
  for (size_t i = 0; i < shard.size(); ++i) {
    for (size_t field = 0; field < fields.size(); ++field) field_tokens[field] += shard.sequence(i, field).size();
    empty += shard.sequence(i, 0).empty() ? 1 : 0;
  }
  if (shard.header.kind == kDocumentsKind) return {{"documents", empty}, {"sentences", shard.size() - empty}};
  ordered_json counts;
  for (size_t field = 0; field < fields.size(); ++field) counts[fields[field]] = field_tokens[field];
  ordered_json result{{"field_tokens", counts}};
  if (shard.header.kind == kQuestionsKind) result.update(count_questions(shard, stream.name()));
  return result;
}

void show_records(ShardStream& stream, bool ids, ByteSink& sink) {
  const WholeShard shard = read_whole_shard(stream, stream.header().kind);
  const auto tokenizer = parse_tokenizer(shard.header.tokenizer, stream.name());
  if (shard.header.kind == kQuestionsKind && !ids) return show_questions(shard, *tokenizer, stream.name(), sink);
  const bool documents = shard.header.kind == kDocumentsKind;
  const size_t num_token_fields = record_kind(shard.header.kind)->num_token_fields;
  std::optional<ExampleTask> task;
  if (shard.header.kind == kExamplesKind && !ids) task = task_of(shard.header, stream.name());
  for (size_t i = 0; i < shard.size(); ++i) {
    if (documents && !ids && i + 1 == shard.size()) return;  // the empty sequence that ends the last document
    for (size_t field = 0; field < shard.header.fields.size(); ++field) {
      const auto sequence = shard.sequence(i, field);
      sink.write(field > 0 ? "\t" : "");
      sink.write(task && field >= num_token_fields && !sequence.empty()
                     ? task->text_of(sequence[0])
                     : text_of_tokens(sequence, *tokenizer, ids || field >= num_token_fields));
    }
    sink.write("\n");
  }
}

}  // namespace mh::text
