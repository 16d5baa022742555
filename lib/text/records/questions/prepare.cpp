// mh-prep squad: converts files of SQuAD to a shard of questions.

#include "base/json_types.h"
#include "base/log.h"
#include "text/records/preparation.h"
#include "text/records/questions/records.h"
#include "text/records/questions/squad.h"
#include "text/tokenizers.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

struct SquadPrepOptions {
  BertVocabulary vocabulary;
  SquadOptions squad;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", squad);
    f.section("", threads);
  }
};

void report(const Squad& squad, const QuestionsSummary& sum) {
  if (squad.missing > 0)
    log_info(str(format_count(squad.missing, "of "), format_count(squad.answers, "answers"),
                 " are not at their offset in the paragraph; training does not use these answers"));
  if (squad.impossible > 0)
    log_info(format_count(squad.impossible, "questions are impossible, since the paragraph contains no answer"));
  log_info(str(format_count(sum.questions, "questions on "), format_count(sum.paragraphs, "paragraphs, "),
               format_count(sum.question_tokens, "+ "), format_count(sum.paragraph_tokens, "tokens, "),
               format_count(sum.question_unknown, "+ "), format_count(sum.paragraph_unknown, "unknown, "),
               format_throughput(squad.bytes, sum.seconds)));
}

void make_squad(const PrepArguments& a, const SquadPrepOptions& o) {
  const auto tokenizer = load_vocabulary(a, o.vocabulary);
  const Squad squad = read_squad(a.inputs, o.squad);
  ShardHeader header = header_of(*tokenizer);
  set_questions(header, squad, o.squad);
  header.provenance = provenance_of(a, o.vocabulary,
                                    {{"missing_share", o.squad.missing_share}, {"unanswerable", o.squad.unanswerable}});
  QuestionsSummary sum;
  write_shard(a, header,
              [&](ShardWriter& writer) { sum = encode_questions(squad, *tokenizer, o.threads.count(), writer); });
  report(squad, sum);
}

class QuestionsPreparation : public OptionsPreparation<SquadPrepOptions, make_squad> {
 public:
  std::string inputs_help() const override { return "files of SQuAD, version 1.1 or 2.0"; }
  bool reads_lines() const override { return false; }
};

const Registration<QuestionsPreparation> squad_entry(
    preparations(), "squad", "make a shard of questions: one question and its paragraph per record");

}  // namespace

}  // namespace mh::text
