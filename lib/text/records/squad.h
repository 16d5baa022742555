// Reads the files of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): paragraphs, and questions whose answers are spans
// of the paragraph. Offsets in the files count Unicode code points; offsets in the structs below count bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "text/wordpiece.h"

namespace mh::text {

struct SquadOptions {
  double missing_fraction = 0.01;
  std::string unanswerable_handling = "refuse";
  void describe(Fields& f) {
    f.field("missing_fraction", missing_fraction,
            "maximum fraction of answers whose text is not at the offset answer_start in the paragraph; a larger "
            "fraction is an error",
            between(0, 1));
    f.field("unanswerable", unanswerable_handling,
            "treatment of questions of SQuAD 2.0 that the paragraph does not answer; refuse: stop with an error; keep: "
            "store the questions",
            {"refuse", "keep"});
  }
};

struct GoldAnswer {
  std::string text;
  // Byte range of the answer in the paragraph; nullopt if the text of the answer is empty or not at the offset that the
  // file states. Such an answer is used for scoring, but not for training.
  std::optional<TextRange> byte_range;
};

struct SquadQuestion {
  std::string id, text;
  std::vector<GoldAnswer> answers;  // empty if and only if the question is unanswerable
  bool is_unanswerable = false;
};

struct SquadParagraph {
  std::string text;  // without NUL, like the texts of the questions
  std::vector<SquadQuestion> questions;
  std::string where;  // file, article and paragraph, for messages
};

struct Squad {
  std::vector<SquadParagraph> paragraphs;
  uint64_t num_bytes = 0;  // total size of the files
  uint64_t num_questions = 0, num_answers = 0;
  uint64_t num_unanswerable = 0;           // number of questions that their paragraph does not answer
  uint64_t num_answers_without_range = 0;  // number of answers without a `byte_range`
};

// Reads the files in order; "-" is standard input. JSON entries may have any order; unused entries, such as
// plausible_answers, are skipped. Throws Error(input), with file, article, paragraph and question, for invalid or
// truncated JSON, missing entries or entries of a wrong type, text with a NUL byte or of INT32_MAX bytes or more, a
// repeated id, an answer that does not start within its paragraph, an unanswerable question with answers, a question
// without answers that is not unanswerable, and files without questions; depending on the options, also for misplaced
// answers and for unanswerable questions.
Squad read_squad(const std::vector<std::string>& files, const SquadOptions& options);

}  // namespace mh::text
