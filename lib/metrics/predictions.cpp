#include "metrics/predictions.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::metrics {

namespace {

using nlohmann::ordered_json;

// Returns a JSON object with one question per line, from the id of a question to `value_of(answers)`. Throws
// Error(failed) unless `answers` has one element per question.
template <class ValueOf>
std::string json_by_question(const text::Questions& questions, const std::vector<Answers>& answers,
                             const ValueOf& value_of) {
  if (answers.size() != questions.questions().size())
    throw Error(Exit::failed,
                Problem{"predictions", str("answers to ", count_of(questions.questions().size(), "question")),
                        count_of(answers.size(), "answer"), "pass the answers to each question"});
  std::string text;
  for (size_t i = 0; i < answers.size(); ++i)
    text += str(i == 0 ? "{\n " : ",\n ", ordered_json(questions.questions()[i].id).dump(), ": ",
                value_of(answers[i]).dump());
  return text + (text.empty() ? "{}\n" : "\n}\n");
}

}  // namespace

std::string predictions_tsv(const text::ExampleTask& task, std::span<const double> predictions) {
  std::string text = "index\tprediction\n";
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double value = predictions[i];
    text += std::to_string(i) + "\t";
    text += task.is_number() ? fixed_decimal(value, 3) : task.labels.at(static_cast<size_t>(value));
    text += "\n";
  }
  return text;
}

std::string predictions_json(const text::Questions& questions, const std::vector<Answers>& answers) {
  return json_by_question(questions, answers, [](const Answers& a) { return ordered_json(a.text); });
}

std::string best_answers_json(const text::Questions& questions, const std::vector<Answers>& answers) {
  return json_by_question(questions, answers, [](const Answers& a) {
    ordered_json list = ordered_json::array();
    for (const Answer& answer : a.best_answers)
      list.push_back({{"text", answer.text},
                      {"probability", answer.probability},
                      {"start_logit", answer.start_logit},
                      {"end_logit", answer.end_logit}});
    return list;
  });
}

Predictions read_predictions(const std::string& path) {
  const std::string expected = "predictions, a JSON object from the id of each question to the text of an answer",
                    advice = "write the predictions in the format of the official SQuAD scripts";
  const auto refuse = [&](const std::string& found) { refuse_input(input_name(path), expected, found, advice); };
  const auto object = parse_json<nlohmann::json>(read_text_file(path), input_name(path), expected, advice);
  if (!object.is_object()) refuse(object.type_name());
  Predictions predictions;
  for (const auto& [id, text] : object.items()) {
    if (!text.is_string()) refuse(str("'", id, "': ", text.type_name()));
    predictions[id] = text.get<std::string>();
  }
  return predictions;
}

AnswerScore answer_score(const text::Question& question, const std::string& answer, bool may_be_unanswerable) {
  std::vector<std::string> gold_answers;
  for (const text::GoldAnswer& a : question.answers)
    if (!may_be_unanswerable || !normalised_answer(a.text).empty()) gold_answers.push_back(a.text);
  const bool has_no_gold_answer = gold_answers.empty();
  if (has_no_gold_answer) gold_answers.emplace_back();
  AnswerScore score = answer_score(answer, gold_answers);
  if (may_be_unanswerable && has_no_gold_answer) score.f1 = score.exact;
  return score;
}

PredictionScores score_predictions(const text::Questions& questions, const Predictions& predictions) {
  PredictionScores scores;
  int64_t num_predicted = 0;
  for (const text::Question& q : questions.questions()) {
    const auto it = predictions.find(q.id);
    const bool has_prediction = it != predictions.end();
    const AnswerScore score =
        has_prediction ? answer_score(q, it->second, questions.may_have_unanswerable()) : AnswerScore{};
    ++(has_prediction ? num_predicted : scores.num_missing_predictions);
    scores.all_questions.add(score);
    (q.is_unanswerable ? scores.unanswerable_questions : scores.answerable_questions).add(score);
  }
  scores.num_unknown_ids = static_cast<int64_t>(predictions.size()) - num_predicted;
  return scores;
}

}  // namespace mh::metrics
