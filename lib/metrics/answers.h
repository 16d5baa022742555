// From a model's start and end scores of rows (questions.h) to answers, as BERT's run_squad.py has it for SQuAD 1.1 and
// 2.0, with these differences:
//   - all pairs of a start and an end are looked at, not those of the 20 best starts and 20 best ends of a row alone;
//   - an answer is the paragraph's own bytes, from its first token's first one to its last token's last one. BERT's
//     get_final_text looks for the tokens' letters in the words around them instead, with their white space made
//     single, and gives those words whole where it does not find them again.
//
// An answer runs from one token of the paragraph to the same or a later one, both in one window, its start in the
// window in which it counts (Questions::counts_here); its score is the start's plus the end's. Of answers that read the
// same only the best is one. Equal scores: the earlier window, then the earlier start, then the earlier end, and any
// answer before none.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/fields.h"
#include "text/records/questions.h"

namespace mh::metrics {

struct AnswerOptions {
  int64_t best = 20;
  int64_t longest = 30;
  double null_threshold = 0;
  void describe(Fields& f) {
    f.field("best", best, "answers to a question that are kept", at_least(1));
    f.field("longest", longest, "tokens of an answer at most", at_least(1));
    f.field("null_threshold", null_threshold,
            "where questions may be impossible: one is taken for it whose score of no answer exceeds that of the best "
            "answer by more than this");
  }
};

struct Answer {
  std::string text;           // empty: there is none
  double start = 0, end = 0;  // their scores; of none those of [CLS] in the window where their sum is least
  double probability = 0;     // among those of its question that are kept
  double score() const { return start + end; }
};

struct Answers {
  std::vector<Answer> best;  // by falling score, AnswerOptions::best at most, and none besides where it is not of these
  std::string text;          // the answer that is given
  // Where questions may be impossible: the score of none less that of the best answer.
  double null_difference = 0;
};

class AnswerSearch {
 public:
  // The questions must outlive it.
  AnswerSearch(const text::Questions& questions, const AnswerOptions& options);

  // The scores of a row, one of each kind for every position, in any order of the rows. Error(failed) for another
  // number of them, and for one that is not finite.
  void add(int64_t row, std::span<const float> start, std::span<const float> end);
  // Of a question all of whose rows were added; else Error(failed).
  Answers answers(int64_t question) const;

 private:
  struct Candidate {
    double start, end;
    text::Span span;  // tokens of the paragraph
    double score() const { return start + end; }
  };
  struct Row {
    bool added = false;
    double null_start = 0, null_end = 0;
    std::vector<Candidate> best;  // ordered, no two reading the same
  };
  static bool before(const Candidate& a, const Candidate& b);
  std::vector<Candidate> best_of(int64_t row, std::span<const float> start, std::span<const float> end,
                                 size_t count) const;
  std::vector<Candidate> distinct(const text::Paragraph& paragraph, const std::vector<Candidate>& ordered) const;

  const text::Questions& questions_;
  AnswerOptions options_;
  std::vector<Row> rows_;
};

}  // namespace mh::metrics
