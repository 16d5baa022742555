// The jobs of mh-prep, each as its subcommand calls it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/fields.h"
#include "text/bert_vocabulary.h"
#include "text/records/encode_pairs.h"
#include "text/records/squad.h"
#include "text/vocabulary.h"

namespace mh::prep {

// What the subcommands share.
struct Arguments {
  std::vector<std::string> inputs;
  std::string output = "-";
  std::string crlf = "refuse";
  std::string format = "table";
  bool ids = false;
};

struct LmOptions {
  std::string vocab;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("vocab", vocab, "vocabulary made by mh-prep vocab, or a SentencePiece model");
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

struct TranslationOptions {
  std::string vocab, source_vocab, target_vocab;
  text::PairFilters filters;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("vocab", vocab, "one vocabulary of both sides");
    f.field("source_vocab", source_vocab, "vocabulary of the source side, with --target-vocab");
    f.field("target_vocab", target_vocab, "vocabulary of the target side, with --source-vocab");
    f.section("", filters);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

struct MlmOptions {
  text::BertVocabulary vocabulary;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

// Where a file of examples has what.
struct ColumnOptions {
  std::string text, text_b, label;
  bool no_header = false;
  std::string malformed = "refuse";
  void describe(Fields& f) {
    f.field("text", text, "column of the text, by its name in the first line or its number from 1");
    f.field("text_b", text_b, "column of the second text");
    f.field("label", label, "column of the label");
    f.field("no_header", no_header, "the first line is an example; columns are numbers");
    f.field("malformed", malformed, "a line of another number of columns, in files with labels", {"refuse", "drop"});
  }
};

struct GlueOptions {
  std::string task;
  text::BertVocabulary vocabulary;
  ColumnOptions columns;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("task", task, "cola, sst2, mrpc, stsb, qqp, mnli, mnli-mm, qnli, rte, wnli or ax");
    f.section("", vocabulary);
    f.section("", columns);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

struct ExamplesOptions {
  text::BertVocabulary vocabulary;
  ColumnOptions columns;
  std::string labels, metrics;  // words with commas between
  std::vector<double> number;
  std::string name = "examples";
  int64_t threads = 0;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", columns);
    f.field("labels", labels, "words of the labels, with commas between, in the order of their classes");
    f.field("number", number, "instead, labels are numbers between these two, as 0,5", at_least(0));
    f.field("metrics", metrics,
            "accuracy, f1 and matthews of words [accuracy], pearson and spearman of numbers [both]");
    f.field("name", name, "of the task");
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

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

text::LineEnds line_ends(const Arguments& a, bool any_bytes);
// Logs how many lines ended in CR LF, and how many of several files began with a byte order mark (each file is logged
// when its mark is read).
void report_dropped(uint64_t line_ends, uint64_t byte_order_marks);
int threads_of(int64_t asked);
// "1,234 lines"
std::string counted(uint64_t count, const std::string& what);
// Of a shard made with a vocabulary for BERT; `more`: options of its own.
std::string provenance_of(const Arguments& a, const text::BertVocabulary& vocabulary,
                          const nlohmann::ordered_json& more);
// "12.3 MB in 2s (6.1 MB/s)"
std::string speed(uint64_t bytes, double seconds);

void make_vocab(const Arguments& a, const text::VocabularyOptions& options);
void show_codes(const Arguments& a);
void make_lm(const Arguments& a, const LmOptions& options);
void make_mlm(const Arguments& a, const MlmOptions& options);
void make_glue(const Arguments& a, const GlueOptions& options);
void make_examples(const Arguments& a, const ExamplesOptions& options);
void make_translation(const Arguments& a, const TranslationOptions& options);
void make_squad(const Arguments& a, const SquadPrepOptions& options);
void show_info(const Arguments& a);
void show_text(const Arguments& a);

}  // namespace mh::prep
