// Answers to questions as files, and their scores: those of the official scripts of SQuAD 1.1 and 2.0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/answers.h"
#include "metrics/scores.h"

namespace mh::metrics {

// The answer to each question that has one, by the question's id; "" predicts that there is no answer.
using Predictions = std::map<std::string, std::string>;

// Returns {id: text, …} as the official scripts read it, in the questions' order.
std::string predictions_json(const text::Questions& questions, const std::vector<Answers>& answers);
// Returns {id: [{text, probability, start_logit, end_logit}, …], …}, best first, as BERT writes it.
std::string best_json(const text::Questions& questions, const std::vector<Answers>& answers);
// Reads the format of predictions_json(); "-" is standard input. Throws Error(input) for other content.
Predictions read_predictions(const std::string& path);

// Exact match and F1 over all questions; a question without a prediction scores 0 (the official script of SQuAD 2.0
// leaves such a question out).
//
// If questions may be impossible, the rules of SQuAD 2.0 apply: true answers that are empty once normalised do not
// count, the true answer of an impossible question is "", and if the answer or a true answer is empty, F1 is whether
// both are.
struct PredictionScores {
  AnswerScores all;
  AnswerScores possible, impossible;  // HasAns and NoAns of the official script
  int64_t without = 0;                // questions without a prediction
  int64_t unknown = 0;                // predictions for other questions
};
PredictionScores score_predictions(const text::Questions& questions, const Predictions& predictions);
// Returns the score of one answer by these rules.
AnswerScore answer_score(const text::Question& question, const std::string& answer, bool unanswerable);

}  // namespace mh::metrics
