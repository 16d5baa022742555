// The files of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): paragraphs, and questions whose answers are parts of
// them. Offsets in the files count Unicode code points; here they are bytes.
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
  // Range in the paragraph; none if the answer is not there: it can then be scored against but not learnt from.
  std::optional<TextRange> place;
};

struct SquadQuestion {
  std::string id, text;
  std::vector<TrueAnswer> answers;  // empty if and only if it is impossible
  bool impossible = false;
};

struct SquadParagraph {
  std::string text;  // without NUL, as are questions
  std::vector<SquadQuestion> questions;
  std::string where;  // file, article and paragraph, for messages
};

struct Squad {
  std::vector<SquadParagraph> paragraphs;
  uint64_t bytes = 0;  // bytes of the files
  uint64_t questions = 0, answers = 0;
  uint64_t impossible = 0;  // impossible questions
  uint64_t missing = 0;     // answers that are not at their offset in the paragraph
};

// Reads all files, in order; "-" is standard input. Entries may have any order; unused ones (such as plausible_answers)
// are skipped, and those of paragraphs and answers must exist. Throws Error(input), with file, article, paragraph and
// question: for JSON that is invalid or truncated, for entries that are missing or of another type, for an id that
// occurs twice, an answer that begins after its paragraph, a question without answers that is not impossible or the
// other way round; depending on the options, for misplaced answers and for impossible questions.
Squad read_squad(const std::vector<std::string>& files, const SquadOptions& options);

}  // namespace mh::text
