// The files of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): paragraphs, and questions whose answers are parts of
// them. In the files places count Unicode code points; here they are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "text/wordpiece.h"

namespace mh::text {

struct SquadOptions {
  double missing_share = 0.01;
  std::string unanswerable = "refuse";
  void describe(Fields& f) {
    f.field("missing_share", missing_share,
            "refuse files in which a larger share of the answers does not stand in its paragraph where it should",
            between(0, 1));
    f.field("unanswerable", unanswerable, "questions that their paragraph does not answer, as in SQuAD 2.0",
            {"refuse", "keep"});
  }
};

struct TrueAnswer {
  std::string text;
  // Where the paragraph has it. Without: it is not there, so the answer can be compared with but not be learnt from.
  std::optional<TextRange> place;
};

struct SquadQuestion {
  std::string id, text;
  std::vector<TrueAnswer> answers;  // none exactly where it is impossible
  bool impossible = false;
};

struct SquadParagraph {
  std::string text;  // neither it nor a question holds a NUL
  std::vector<SquadQuestion> questions;
  std::string where;  // file, article and paragraph, for messages
};

struct Squad {
  std::vector<SquadParagraph> paragraphs;
  uint64_t bytes = 0;  // of the files
  uint64_t questions = 0, answers = 0;
  uint64_t impossible = 0;  // of the questions
  uint64_t missing = 0;     // answers that are not in their paragraph at their place
};

// All of the files, in order; "-" is standard input. Entries stand in any order, those that are not needed are passed
// over (plausible_answers among them), and what a paragraph or an answer needs must be there. Error(input), with file,
// article, paragraph and question: for JSON that is none or cut off, for entries that are missing or of another type,
// for an id that occurs twice, an answer that begins behind its paragraph, a question without answers that is not
// impossible or the other way round; by the options for answers that are elsewhere and for impossible questions.
Squad read_squad(const std::vector<std::string>& files, const SquadOptions& options);

}  // namespace mh::text
