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

ordered_json count_questions(const WholeShard& all, const std::string& name) {
  uint64_t paragraphs = 0, answers = 0, missing = 0, impossible = 0;
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    QuestionRecord record = question_record(all, i, name);
    paragraphs += i == 0 || record.text != text ? 1 : 0;
    text = std::move(record.text);
    answers += record.answers.size();
    for (const GoldAnswer& answer : record.answers) missing += answer.place ? 0 : 1;
    impossible += record.impossible ? 1 : 0;
  }
  return {{"paragraphs", paragraphs}, {"answers", answers}, {"missing_answers", missing}, {"impossible", impossible}};
}

void show_questions(const WholeShard& all, const Tokenizer& tokenizer, const std::string& name, ByteSink& sink) {
  for (size_t i = 0; i < all.size(); ++i) {
    const QuestionRecord record = question_record(all, i, name);
    sink.write(escape_piece(record.id) + "\t" + tokenizer.decode(record.question) + "\t" +
               tokenizer.decode(record.context) + "\n");
  }
}

}  // namespace

ordered_json count_records(ShardStream& stream) {
  const WholeShard all = read_whole_shard(stream, stream.header().kind);
  const auto& fields = all.header.fields;
  std::vector<uint64_t> numbers(fields.size());
  uint64_t empty = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t field = 0; field < fields.size(); ++field) numbers[field] += all.run(i, field).size();
    empty += all.run(i, 0).empty() ? 1 : 0;
  }
  if (all.header.kind == kDocumentsKind) return {{"documents", empty}, {"sentences", all.size() - empty}};
  ordered_json counts;
  for (size_t field = 0; field < fields.size(); ++field) counts[fields[field]] = numbers[field];
  ordered_json found{{"field_tokens", counts}};
  if (all.header.kind == kQuestionsKind) found.update(count_questions(all, stream.name()));
  return found;
}

void show_records(ShardStream& stream, bool ids, ByteSink& sink) {
  const WholeShard all = read_whole_shard(stream, stream.header().kind);
  const auto tokenizer = parse_tokenizer(all.header.tokenizer, stream.name());
  if (all.header.kind == kQuestionsKind && !ids) return show_questions(all, *tokenizer, stream.name(), sink);
  const bool documents = all.header.kind == kDocumentsKind;
  const size_t num_token_fields = record_kind(all.header.kind)->num_token_fields;
  std::optional<ExampleTask> task;
  if (all.header.kind == kExamplesKind && !ids) task = task_of(all.header, stream.name());
  for (size_t i = 0; i < all.size(); ++i) {
    if (documents && !ids && i + 1 == all.size()) return;  // the empty sequence that ends the last document
    for (size_t field = 0; field < all.header.fields.size(); ++field) {
      const auto run = all.run(i, field);
      sink.write(field > 0 ? "\t" : "");
      sink.write(task && field >= num_token_fields && !run.empty()
                     ? task->text_of(run[0])
                     : text_of_tokens(run, *tokenizer, ids || field >= num_token_fields));
    }
    sink.write("\n");
  }
}

}  // namespace mh::text
