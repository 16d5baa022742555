// The jobs of mh-prep, each as its subcommand calls it.
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
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

void make_vocab(const Arguments& a, const io::VocabularyOptions& options);
void make_lm(const Arguments& a, const LmOptions& options);
void show_info(const Arguments& a);
void show_text(const Arguments& a);

}  // namespace mh::prep
