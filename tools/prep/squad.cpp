// mh-prep squad: questions of SQuAD to a shard.
#include "text/records/questions/squad.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "prep.h"
#include "text/records/questions/records.h"
#include "text/tokenizers.h"

namespace mh::prep {

using namespace mh::io;
using namespace mh::text;
using nlohmann::ordered_json;

namespace {

struct SquadPrepOptions {
  text::BertVocabulary vocabulary;
  text::SquadOptions squad;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", squad);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

void report(const Squad& squad, const QuestionsSummary& sum) {
  if (squad.missing > 0)
    log_info(str(counted(squad.missing, "of "), counted(squad.answers, "answers"),
                 " do not stand in their paragraph where they should; nothing is learnt from them"));
  if (squad.impossible > 0) log_info(counted(squad.impossible, "questions that their paragraph does not answer"));
  log_info(str(counted(sum.questions, "questions on "), counted(sum.paragraphs, "paragraphs, "),
               counted(sum.question_tokens, "+ "), counted(sum.paragraph_tokens, "tokens, "),
               counted(sum.question_unknown, "+ "), counted(sum.paragraph_unknown, "unknown, "),
               speed(squad.bytes, sum.seconds)));
}

void make_squad(const Arguments& a, const SquadPrepOptions& o) {
  o.vocabulary.check();
  std::vector<std::string> read = a.inputs;
  read.push_back(o.vocabulary.file());
  refuse_output_onto_input(a.output, read);
  const auto tokenizer = o.vocabulary.load();
  const Squad squad = read_squad(a.inputs, o.squad);
  ShardHeader header = header_of(*tokenizer);
  hold_questions(header, squad, o.squad);
  header.provenance = provenance_of(a, o.vocabulary,
                                    {{"missing_share", o.squad.missing_share}, {"unanswerable", o.squad.unanswerable}});
  auto sink = open_sink(a.output);
  ShardWriter writer(*sink, header);
  const QuestionsSummary sum = encode_questions(squad, *tokenizer, threads_of(o.threads), writer);
  writer.finish();
  sink->close();
  report(squad, sum);
}

}  // namespace

void add_squad(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("squad", "make a shard of questions: a question and its paragraph a record");
  const auto a = std::make_shared<Arguments>();
  add_inputs(*sub, *a, "files of SQuAD, version 1.1 or 2.0");
  add_output(*sub, *a);
  add_job(sub, a, make_squad, jobs);
}

}  // namespace mh::prep
