// Selects answers to questions by the start and end logits of a model (text/records/questions.h), as BERT's
// run_squad.py does for SQuAD 1.1 and 2.0, with two differences:
//   - All pairs of a start and an end are considered, not only pairs of the 20 best starts and 20 best ends of a row.
//   - An answer consists of bytes of the paragraph, from the first byte of its first token to the last byte of its
//     last token. BERT's get_final_text instead searches the words around the tokens for the letters of the tokens,
//     joins these words with single spaces, and returns all joined words if the search fails.
//
// A candidate answer starts at a token of the paragraph and ends at the same or a later token of the same window; it
// has at most AnswerOptions::max_answer_tokens tokens. The candidate belongs to the window that scores its first token
// (Questions::scored_tokens()). The score of an answer is the sum of its start and end logits. Of several candidates
// with the same text only the best counts. Ties are broken by the earlier window, then by the earlier start, then by
// the earlier end; an answer precedes "no answer".
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
  int64_t num_best_answers = 20;
  int64_t max_answer_tokens = 30;
  double null_threshold = 0;
  void describe(Fields& f) {
    f.field("num_best_answers", num_best_answers,
            "number of highest-scoring answers in the list of best answers to each question", at_least(1));
    f.field("max_answer_tokens", max_answer_tokens, "maximum length of an answer in tokens", at_least(1));
    f.field("null_threshold", null_threshold,
            "threshold for questions that may be unanswerable: the empty answer is predicted if its score exceeds the "
            "score of the best other answer by more than this value");
  }
};

struct Answer {
  std::string text;  // text of the answer; empty: no answer
  // Start logit and end logit; for "no answer", the two logits of [CLS] in the window where their sum is lowest.
  double start_logit = 0, end_logit = 0;
  double probability = 0;  // softmax of the scores of Answers::best_answers
  double score() const { return start_logit + end_logit; }
};

struct Answers {
  // Best answers in descending order of score, at most AnswerOptions::num_best_answers. If questions may be
  // unanswerable, the list also contains "no answer": within this maximum if its score is high enough, otherwise as an
  // additional last answer.
  std::vector<Answer> best_answers;
  std::string text;  // predicted answer; empty: no answer
  // Score of "no answer" minus the score of the best other answer; 0 unless questions may be unanswerable.
  double null_score_difference = 0;
};

class AnswerSearch {
 public:
  // `questions` must outlive the search.
  AnswerSearch(const text::Questions& questions, const AnswerOptions& options);

  // Adds the start and end logits of a row, one of each per position; rows may come in any order. Throws Error(failed)
  // if the number of start or end logits differs from the length of the row, and for a logit that is not finite.
  void add(int64_t row, std::span<const float> start_logits, std::span<const float> end_logits);
  // Returns the answers to a question. Throws Error(failed) if the question has no rows, or if add() has not received
  // all rows of the question.
  Answers answers(int64_t question) const;

 private:
  struct Candidate {
    double start_logit, end_logit;
    text::AnswerSpan span;  // first and last token in the paragraph
    double score() const { return start_logit + end_logit; }
  };
  // The best answers in a window; each row is one window.
  struct WindowAnswers {
    bool has_logits = false;                          // whether add() has received the window
    double null_start_logit = 0, null_end_logit = 0;  // logits of [CLS]
    std::vector<Candidate> best_candidates;  // best candidates with distinct texts, in descending order of score
  };
  // Returns whether `a` precedes `b`: by higher score, then by earlier start, then by earlier end.
  static bool ranks_before(const Candidate& a, const Candidate& b);
  // Returns the best candidates of a row, at most `count`, in descending order of score.
  std::vector<Candidate> best_candidates(int64_t row, std::span<const float> start_logits,
                                         std::span<const float> end_logits, size_t count) const;
  // Returns the first candidate of each distinct text, at most AnswerOptions::num_best_answers candidates.
  std::vector<Candidate> best_distinct_candidates(const text::Paragraph& paragraph,
                                                  const std::vector<Candidate>& candidates) const;

  const text::Questions& questions_;
  AnswerOptions options_;
  std::vector<WindowAnswers> windows_;  // indexed by row
};

}  // namespace mh::metrics
