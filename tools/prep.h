// The jobs of mh-prep, each as its subcommand calls it.
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
#include "io/encode_pairs.h"
#include "io/vocabulary.h"

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
  io::PairFilters filters;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("vocab", vocab, "one vocabulary of both sides");
    f.field("source_vocab", source_vocab, "vocabulary of the source side, with --target-vocab");
    f.field("target_vocab", target_vocab, "vocabulary of the target side, with --source-vocab");
    f.section("", filters);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

// How line ends are read, and what is said of those that were not as wished.
io::LineEnds line_ends(const Arguments& a, bool any_bytes);
void report_crlf(uint64_t normalised);
int threads_of(int64_t asked);
// "12.3 MB in 2s (6.1 MB/s)"
std::string speed(uint64_t bytes, double seconds);

void make_vocab(const Arguments& a, const io::VocabularyOptions& options);
void show_codes(const Arguments& a);
void make_lm(const Arguments& a, const LmOptions& options);
void make_translation(const Arguments& a, const TranslationOptions& options);
void show_info(const Arguments& a);
void show_text(const Arguments& a);

}  // namespace mh::prep
