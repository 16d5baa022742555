// Answers from the start and end scores of a model's rows (questions.h), as in BERT's run_squad.py for SQuAD 1.1
// and 2.0, except that
//   - all pairs of a start and an end are considered, not only those of the 20 best starts and 20 best ends of a row;
//   - an answer consists of bytes of the paragraph, from the first byte of its first token to the last byte of its last
//     token. BERT's get_final_text instead searches the words around the tokens, with single spaces, for the tokens'
//     letters, and returns those whole words if it does not find them.
//
// An answer runs from one token of the paragraph to the same or a later one in the same window, with its start in the
// window that scores it (Questions::counts_here); its score is the sum of its start and end scores. Among answers with
// the same text only the best counts. Ties: the earlier window, then the earlier start, then the earlier end, and any
// answer before no answer.
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
    f.field("best", best, "number of best answers kept per question", at_least(1));
    f.field("longest", longest, "maximum length of an answer in tokens", at_least(1));
    f.field("null_threshold", null_threshold,
            "if questions may be impossible: threshold of the score of no answer minus that of the best answer, above "
            "which no answer is predicted");
  }
};

struct Answer {
  std::string text;           // empty: no answer
  double start = 0, end = 0;  // scores; for no answer, those of [CLS] in the window where their sum is lowest
  double probability = 0;     // among the question's answers in `best`
  double score() const { return start + end; }
};

struct Answers {
  std::vector<Answer> best;  // by falling score, at most AnswerOptions::best
  std::string text;          // the predicted answer
  // Score of no answer minus that of the best answer, if questions may be impossible.
  double null_difference = 0;
};

class AnswerSearch {
 public:
  // The questions must outlive this.
  AnswerSearch(const text::Questions& questions, const AnswerOptions& options);

  // Adds the start and end scores of a row, one for every position; rows may come in any order. Throws Error(failed)
  // for another number of scores, and for a score that is not finite.
  void add(int64_t row, std::span<const float> start, std::span<const float> end);
  // Returns the answers to a question; throws Error(failed) unless all of its rows were added.
  Answers answers(int64_t question) const;

 private:
  struct Candidate {
    double start, end;
    text::Span span;  // in tokens of the paragraph
    double score() const { return start + end; }
  };
  struct Row {
    bool added = false;
    double null_start = 0, null_end = 0;
    std::vector<Candidate> best;  // sorted, with different texts
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
