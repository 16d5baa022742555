// Formats predicted classes and numbers, and predicted answers to questions, as the text of prediction files. Reads
// files of predicted answers, and scores the answers as the official scripts of SQuAD 1.1 and 2.0 do.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "metrics/answers.h"
#include "metrics/scores.h"
#include "text/records/classification.h"

namespace mh::metrics {

// Returns the tab-separated table that GLUE's server reads: the line "index prediction", then one line per example with
// the name of the class, or the number with three decimals. `predictions` are class indices, or numbers in units of 1
// (not in thousandths).
std::string predictions_tsv(const text::ExampleTask& task, std::span<const double> predictions);

// Predicted answers by the id of the question; "" predicts that the question has no answer. A question whose id is
// absent has no prediction.
using Predictions = std::map<std::string, std::string>;

// Returns the JSON object {id: text, …} that the official scripts read, in the order of `questions`.
std::string predictions_json(const text::Questions& questions, const std::vector<Answers>& answers);
// Returns the JSON object {id: [{text, probability, start_logit, end_logit}, …], …}, in the format of BERT, with the
// best answer of each question first.
std::string best_answers_json(const text::Questions& questions, const std::vector<Answers>& answers);
// Reads a file in the format of predictions_json(), or standard input for "-". Throws Error(input) for other content.
Predictions read_predictions(const std::string& path);

// Exact match and F1 over all questions. A question that has no prediction scores 0 (the official script of SQuAD 2.0
// omits it).
//
// If questions may be unanswerable, the rules of SQuAD 2.0 apply: true answers that are empty after normalisation are
// ignored; the true answer to an unanswerable question is ""; and if the prediction or the true answer is empty, F1 is
// 1 if both are empty and 0 otherwise.
struct PredictionScores {
  AnswerScoreMean all_questions;
  AnswerScoreMean answerable_questions,
      unanswerable_questions;           // HasAns and NoAns in the official script
  int64_t num_missing_predictions = 0;  // number of questions that have no prediction
  int64_t num_unknown_ids = 0;          // number of predictions whose id belongs to no question
};
PredictionScores score_predictions(const text::Questions& questions, const Predictions& predictions);
// Returns the score of a predicted answer to a question. `may_be_unanswerable`: whether questions of the data set may
// be unanswerable, so that the rules of SQuAD 2.0 apply.
AnswerScore answer_score(const text::Question& question, const std::string& answer, bool may_be_unanswerable);

}  // namespace mh::metrics
