// Answers to questions as files, and how good they are: those of the official scripts of SQuAD 1.1 and 2.0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/answers.h"
#include "metrics/scores.h"

namespace mh::metrics {

// Of each question that has an answer, by its id; "" says that there is none.
using Predictions = std::map<std::string, std::string>;

// {id: text, …} as the official scripts take it, in the questions' order.
std::string predictions_json(const text::Questions& questions, const std::vector<Answers>& answers);
// {id: [{text, probability, start_logit, end_logit}, …], …}, best first, as BERT writes it.
std::string best_json(const text::Questions& questions, const std::vector<Answers>& answers);
// The first of these. Error(input) for anything else; "-" is standard input.
Predictions read_predictions(const std::string& path);

// Exact match and F1 over all questions, with 0 for one that has no prediction (of SQuAD 2.0 the official script leaves
// such a question out).
//
// Where questions may be impossible the rules are SQuAD 2.0's: true answers that read as nothing once normalised do not
// count, an impossible question's true answer is "", and where an answer or a true one reads as nothing, F1 is whether
// both do.
struct PredictionScores {
  AnswerScores all;
  AnswerScores possible, impossible;  // parts of it: HasAns and NoAns of the official script
  int64_t without = 0;                // questions that have no prediction
  int64_t unknown = 0;                // predictions for other questions
};
PredictionScores score_predictions(const text::Questions& questions, const Predictions& predictions);
// One answer by these rules.
AnswerScore answer_score(const text::Question& question, const std::string& answer, bool unanswerable);

}  // namespace mh::metrics
