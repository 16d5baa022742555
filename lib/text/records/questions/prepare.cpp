// mh-prep squad: converts files of SQuAD to a shard of questions.

#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "text/records/preparation.h"
#include "text/records/questions/records.h"
#include "text/records/questions/squad.h"
#include "text/tokenizers.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

struct SquadPrepOptions {
  BertVocabularyOptions vocabulary;
  SquadOptions squad;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", squad);
    f.section("", threads);
  }
};

void report(const Squad& squad, const QuestionSummary& summary) {
  if (squad.num_answers_without_range > 0)
    log_info(str(format_count(squad.num_answers_without_range, "of "), count_with_commas(squad.num_answers, "answer"),
                 " not found at their offset in the paragraph; training does not use these answers"));
  if (squad.num_unanswerable > 0)
    log_info(count_with_commas(squad.num_unanswerable, "unanswerable question") +
             ", since the paragraph contains no answer");
  log_info(str(count_with_commas(summary.num_questions, "question"), " on ",
               count_with_commas(summary.num_paragraphs, "paragraph"), ", ",
               format_count(summary.num_question_tokens, "+ "),
               count_with_commas(summary.num_paragraph_tokens, "token"), ", ",
               format_count(summary.num_unknown_in_questions, "+ "),
               format_count(summary.num_unknown_in_paragraphs, "unknown (questions + paragraphs), "),
               format_throughput(squad.num_bytes, summary.seconds)));
}

void make_squad(const PrepArguments& arguments, const SquadPrepOptions& options) {
  const auto tokenizer = load_vocabulary(arguments, options.vocabulary);
  const Squad squad = read_squad(arguments.inputs, options.squad);
  ShardHeader header = header_of(*tokenizer);
  set_questions_header(header, squad, options.squad);
  header.provenance = provenance_of(
      arguments, options.vocabulary,
      {{"missing_share", options.squad.missing_fraction}, {"unanswerable", options.squad.unanswerable_handling}});
  QuestionSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    summary = encode_questions(squad, *tokenizer, options.threads.num_threads(), writer);
  });
  report(squad, summary);
}

class QuestionsPreparation : public PreparationWithOptions<SquadPrepOptions, make_squad> {
 public:
  std::string inputs_help() const override { return "files of SQuAD, version 1.1 or 2.0"; }
  bool reads_lines() const override { return false; }
};

const Registration<QuestionsPreparation> squad_entry(
    preparations(), "squad", "make a shard of questions: one question and its paragraph per record");

}  // namespace

}  // namespace mh::text
