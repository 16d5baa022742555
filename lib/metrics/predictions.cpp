#include "metrics/predictions.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_types.h"

namespace mh::metrics {

namespace {

using nlohmann::ordered_json;

// Returns a JSON object with one question per line, from the id of a question to `of(answers)`. Throws Error(failed)
// unless each question has answers.
template <class Of>
std::string by_question(const text::Questions& questions, const std::vector<Answers>& answers, const Of& of) {
  if (answers.size() != questions.questions().size())
    throw Error(Exit::failed, Problem{"predictions", str("answers to ", questions.questions().size(), " questions"),
                                      str(answers.size()), ""});
  std::string all;
  for (size_t i = 0; i < answers.size(); ++i)
    all += str(i == 0 ? "{\n " : ",\n ", ordered_json(questions.questions()[i].id).dump(), ": ", of(answers[i]).dump());
  return all + (all.empty() ? "{}\n" : "\n}\n");
}

}  // namespace

std::string predictions_json(const text::Questions& questions, const std::vector<Answers>& answers) {
  return by_question(questions, answers, [](const Answers& a) { return ordered_json(a.text); });
}

std::string best_json(const text::Questions& questions, const std::vector<Answers>& answers) {
  return by_question(questions, answers, [](const Answers& a) {
    ordered_json list = ordered_json::array();
    for (const Answer& one : a.best)
      list.push_back(
          {{"text", one.text}, {"probability", one.probability}, {"start_logit", one.start}, {"end_logit", one.end}});
    return list;
  });
}

Predictions read_predictions(const std::string& path) {
  auto refuse = [&](const std::string& found) {
    throw Error(Exit::input, Problem{path, "predictions: a JSON object with the text of an answer for each id", found,
                                     "use the format of the official SQuAD scripts"});
  };
  Predictions predictions;
  const std::string json = read_text_file(path);
  require_sound_json(json, path, "write the predictions again");
  try {
    const auto all = nlohmann::json::parse(json);
    if (!all.is_object()) refuse(all.type_name());
    for (const auto& [id, text] : all.items()) {
      if (!text.is_string()) refuse(str("'", id, "': ", text.type_name()));
      predictions[id] = text.get<std::string>();
    }
  } catch (const nlohmann::json::parse_error& error) {
    refuse(str("invalid JSON at byte ", error.byte));
  }
  return predictions;
}

AnswerScore answer_score(const text::Question& question, const std::string& answer, bool unanswerable) {
  std::vector<std::string> truth;
  for (const text::GoldAnswer& a : question.answers)
    if (!unanswerable || !normalised_answer(a.text).empty()) truth.push_back(a.text);
  const bool none = truth.empty();
  if (none) truth.emplace_back();
  AnswerScore score = answer_score(answer, truth);
  if (unanswerable && none) score.f1 = score.exact;
  return score;
}

PredictionScores score_predictions(const text::Questions& questions, const Predictions& predictions) {
  PredictionScores scores;
  int64_t found = 0;
  for (const text::Question& q : questions.questions()) {
    const auto it = predictions.find(q.id);
    const bool has_prediction = it != predictions.end();
    const AnswerScore score = has_prediction ? answer_score(q, it->second, questions.unanswerable()) : AnswerScore{};
    ++(has_prediction ? found : scores.num_missing);
    scores.all.add(score);
    (q.impossible ? scores.impossible : scores.possible).add(score);
  }
  scores.unknown = static_cast<int64_t>(predictions.size()) - found;
  return scores;
}

}  // namespace mh::metrics
