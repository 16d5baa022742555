// Tests of predictions: metrics::AnswerSearch, which finds answers from start and end scores, compared with a
// brute-force search; files of predicted answers, classes and numbers; exact match and F1 of an answer.
#include "metrics/answers.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/squads.h"
#include "fixtures/status.h"
#include "fixtures/within.h"
#include "metrics/predictions.h"
#include "text/records/glue.h"

using namespace mh;
using namespace squads;

namespace {

const text::SquadOptions kWithUnanswerable{1, "keep"};

// Draws scores from nine values, so that many are equal.
std::vector<float> random_scores(size_t count) {
  auto numbers = *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(-4, 5));
  return {numbers.begin(), numbers.end()};
}

struct RowScores {
  std::vector<std::vector<float>> start, end;  // [row][position]: scores as the start and the end of the answer
};

RowScores random_row_scores(const text::Questions& questions) {
  RowScores s;
  for (int64_t row = 0; row < questions.size(); ++row) {
    s.start.push_back(random_scores(static_cast<size_t>(questions.length(row))));
    s.end.push_back(random_scores(static_cast<size_t>(questions.length(row))));
  }
  return s;
}

struct ScoredSpan {
  double score;
  int64_t row;
  int32_t first, last;  // first and last token of the span: positions in the row
  std::string text;
};

// Returns all spans of at most `max_tokens` tokens that may answer a question, by falling score, found by brute force.
std::vector<ScoredSpan> ranked_spans(const text::Questions& questions, const RowScores& s, int64_t question,
                                     int64_t max_tokens) {
  std::vector<ScoredSpan> spans;
  const auto [begin, end] = questions.rows_of(question);
  for (int64_t row = begin; row < end; ++row) {
    const auto shift = static_cast<int32_t>(questions.paragraph_start(row));
    const text::ParagraphWindow& w = questions.window(row);
    const auto is_scored = questions.scored_tokens(row);
    for (int32_t i = 0; i < w.num_tokens; ++i)
      for (int32_t k = i; k < w.num_tokens && k - i + 1 <= max_tokens; ++k)
        if (is_scored[i])
          spans.push_back({static_cast<double>(s.start[row][shift + i]) + s.end[row][shift + k], row, shift + i,
                           shift + k,
                           questions.paragraph_of(question).text_of({w.first_token + i, w.first_token + k})});
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const ScoredSpan& a, const ScoredSpan& b) { return a.score > b.score; });
  return spans;
}

std::vector<ScoredSpan> best_distinct_texts(const std::vector<ScoredSpan>& spans, size_t count) {
  std::vector<ScoredSpan> out;
  for (const ScoredSpan& span : spans)
    if (out.size() < count &&
        std::none_of(out.begin(), out.end(), [&](const ScoredSpan& o) { return o.text == span.text; }))
      out.push_back(span);
  return out;
}

}  // namespace

TEST_CASE("answers: the n-best list equals the result of a brute-force search") {
  CHECK(rc::check("answers: the n-best list equals the result of a brute-force search", [] {
    const RandomSquad squad = random_squad();
    const text::Questions questions = questions_of(shard_of(squad.json), squad.options);
    const RowScores s = random_row_scores(questions);
    const metrics::AnswerOptions options{*rc::gen::inRange(1, 25), *rc::gen::inRange(1, 8), 0};
    metrics::AnswerSearch search(questions, options);
    for (int64_t row = questions.size() - 1; row >= 0; --row) search.add(row, s.start[row], s.end[row]);
    for (size_t q = 0; q < questions.questions().size(); ++q) {
      const auto expected =
          best_distinct_texts(ranked_spans(questions, s, static_cast<int64_t>(q), options.max_answer_tokens),
                              static_cast<size_t>(options.num_best_answers));
      const metrics::Answers actual = search.answers(static_cast<int64_t>(q));
      RC_ASSERT(actual.best_answers.size() == expected.size());
      double sum = 0;
      for (const ScoredSpan& p : expected) sum += std::exp(p.score);
      for (size_t i = 0; i < expected.size(); ++i) {
        RC_ASSERT(actual.best_answers[i].text == expected[i].text);
        RC_ASSERT(actual.best_answers[i].start_logit == s.start[expected[i].row][expected[i].first]);
        RC_ASSERT(actual.best_answers[i].end_logit == s.end[expected[i].row][expected[i].last]);
        // Rounding errors of exponentials, their sum and a quotient in fp64. exp() multiplies the relative error of a
        // score by the magnitude of the score, which is at most 8.
        const auto operations = static_cast<int64_t>(expected.size()) + 3;
        RC_ASSERT(std::abs(actual.best_answers[i].probability - std::exp(expected[i].score) / sum) <=
                  rounding::fp64_bound(operations, 1 + 8));
      }
      RC_ASSERT(actual.text == expected[0].text);
    }
  }));
}

TEST_CASE("answers: the null answer is ranked by its score if questions may be unanswerable") {
  CHECK(rc::check("answers: the null answer is ranked by its score", [] {
    const RandomSquad squad = random_squad(true);
    const text::Questions questions = questions_of(shard_of(squad.json, kWithUnanswerable), squad.options);
    RC_ASSERT(questions.may_have_unanswerable());
    const RowScores s = random_row_scores(questions);
    const metrics::AnswerOptions options{*rc::gen::inRange(1, 6), 30, static_cast<double>(*rc::gen::inRange(-3, 4))};
    metrics::AnswerSearch search(questions, options);
    for (int64_t row = 0; row < questions.size(); ++row) search.add(row, s.start[row], s.end[row]);
    for (size_t q = 0; q < questions.questions().size(); ++q) {
      const auto [begin, end] = questions.rows_of(static_cast<int64_t>(q));
      double null_score = 100;
      for (int64_t row = begin; row < end; ++row)
        null_score = std::min(null_score, static_cast<double>(s.start[row][0]) + s.end[row][0]);
      auto expected = best_distinct_texts(ranked_spans(questions, s, static_cast<int64_t>(q), 30),
                                          static_cast<size_t>(options.num_best_answers));
      const double best_score = expected[0].score;
      const std::string text = null_score - best_score > options.null_threshold ? "" : expected[0].text;
      // The null answer ranks after answers of equal score. If the list then has more than options.num_best_answers
      // answers, its last answer is dropped, unless this is the null answer.
      auto null_position =
          std::find_if(expected.begin(), expected.end(), [&](const ScoredSpan& p) { return p.score < null_score; });
      const auto null_rank = static_cast<size_t>(null_position - expected.begin());
      expected.insert(null_position, {null_score, 0, 0, 0, ""});
      if (null_rank < static_cast<size_t>(options.num_best_answers) &&
          expected.size() > static_cast<size_t>(options.num_best_answers))
        expected.pop_back();
      const metrics::Answers actual = search.answers(static_cast<int64_t>(q));
      RC_ASSERT(actual.text == text);
      RC_ASSERT(actual.null_score_difference == null_score - best_score);
      RC_ASSERT(actual.best_answers.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) RC_ASSERT(actual.best_answers[i].text == expected[i].text);
    }
  }));
}

TEST_CASE("answers: missing rows, rows with a wrong number of scores and non-finite scores are refused") {
  const auto shard = shard_of(file({article("abc", {question("1", "a", {answer("a", 0)})})}));
  const text::Questions questions = questions_of(shard, {});
  metrics::AnswerSearch search(questions, {});
  std::vector<float> finite(static_cast<size_t>(questions.length(0))), not_finite = finite;
  CHECK(status_of([&] { search.answers(0); }) == 1);
  CHECK(status_of([&] { search.add(0, std::span(finite).first(3), finite); }) == 1);
  for (float value : {std::nanf(""), INFINITY, -INFINITY}) {
    not_finite.back() = value;
    CHECK(status_of([&] { search.add(0, not_finite, finite); }) == 1);
    CHECK(status_of([&] { search.add(0, finite, not_finite); }) == 1);
  }
  search.add(0, finite, finite);
  CHECK(search.answers(0).text == "abc");
}

TEST_CASE("predicted classes and numbers are written in the submission format of the GLUE benchmark") {
  const auto glue = [](const char* name) { return text::glue_task(name).example_task; };
  const auto file_of = [&](const char* name, const std::vector<double>& predictions) {
    return metrics::predictions_tsv(glue(name), predictions);
  };
  CHECK(file_of("rte", {1, 0}) == "index\tprediction\n0\tnot_entailment\n1\tentailment\n");
  CHECK(file_of("mnli", {0, 1, 2}) == "index\tprediction\n0\tentailment\n1\tneutral\n2\tcontradiction\n");
  CHECK(file_of("cola", {1}) == "index\tprediction\n0\t1\n");
  CHECK(file_of("stsb", {3.14159, 0, 4.9999}) == "index\tprediction\n0\t3.142\n1\t0.000\n2\t5.000\n");
  CHECK(glue("mnli").prediction_file == "MNLI-m.tsv");
}

TEST_CASE("predictions: written predictions read back equal and are scored against the answers") {
  const auto json = file({article(
      "abc cab \"ab\"", {question("1", "a", {answer("cab", 4), answer("abc cab", 0)}),
                         question("\"2\"", "a", {answer("abc", 0)}), question("3", "a", {answer("\"ab\"", 8)})})});
  const auto shard = shard_of(json);
  const text::Questions questions = questions_of(shard, {});
  std::vector<metrics::Answers> answers(3);
  answers[0].text = "CAB abc.";
  answers[1].text = "ab\n\"é";
  answers[2].text = "ab";
  answers[2].best_answers = {{"ab", 1.5, 2, 0.75}, {"", 1, 2, 0.25}};
  const Folder folder;
  write_file_atomically(folder.file("answers.json"), metrics::predictions_json(questions, answers));
  const auto predictions = metrics::read_predictions(folder.file("answers.json"));
  CHECK(predictions == metrics::Predictions{{"1", "CAB abc."}, {"\"2\"", "ab\n\"é"}, {"3", "ab"}});
  CHECK(
      ordered_json::parse(metrics::best_answers_json(questions, answers)) ==
      ordered_json::parse(R"({"1":[],"\"2\"":[],"3":[{"text":"ab","probability":0.75,"start_logit":1.5,"end_logit":2.0},
                                {"text":"","probability":0.25,"start_logit":1.0,"end_logit":2.0}]})"));
  const auto scores = metrics::score_predictions(questions, predictions);
  CHECK(scores.all_questions.num_questions() == 3);
  CHECK(scores.all_questions.mean_percent().exact == rounding::fp64(100.0 / 3, 2));
  CHECK(scores.all_questions.mean_percent().f1 == rounding::fp64(200.0 / 3, 4));
  CHECK(scores.answerable_questions.num_questions() == 3);
  CHECK(scores.unanswerable_questions.num_questions() == 0);
  const auto incomplete = metrics::score_predictions(questions, {{"1", "cab"}, {"other", "x"}});
  CHECK(incomplete.num_missing_predictions == 2);
  CHECK(incomplete.num_unknown_ids == 1);
  CHECK(incomplete.all_questions.mean_percent().exact == rounding::fp64(100.0 / 3, 2));
  CHECK(status_of([&] { metrics::predictions_json(questions, {}); }) == 1);
  for (const char* invalid : {"", "{", "[]", "3", R"({"1": 2})", R"({"1": "a")", "\xff", R"({"1": 1e999})"}) {
    write_file_atomically(folder.file("broken"), invalid);
    CHECK(status_of([&] { metrics::read_predictions(folder.file("broken")); }) == 3);
  }
  CHECK(status_of([&] { metrics::read_predictions(folder.file("missing")); }) == 3);
}

TEST_CASE("predictions: exact match and F1 follow SQuAD 2.0 if questions may be unanswerable, else SQuAD 1.1") {
  text::Question unanswerable, empty_after_normalisation, answerable;
  unanswerable.is_unanswerable = true;
  empty_after_normalisation.answers = {{"the", {}}};
  answerable.answers = {{"the abc", {}}, {"a", {}}};
  auto score = [](const text::Question& q, const std::string& answer, bool may_be_unanswerable) {
    const auto s = metrics::answer_score(q, answer, may_be_unanswerable);
    return std::pair(s.exact, s.f1);
  };
  using Scores = std::pair<double, double>;
  CHECK(score(unanswerable, "", true) == Scores{1, 1});
  CHECK(score(unanswerable, "the", true) == Scores{1, 1});
  CHECK(score(unanswerable, "abc", true) == Scores{0, 0});
  CHECK(score(empty_after_normalisation, "an", true) == Scores{1, 1});
  CHECK(score(empty_after_normalisation, "an", false) == Scores{1, 0});  // SQuAD 1.1: F1 is 0 without a common word
  CHECK(score(answerable, "", true) == Scores{0, 0});
  CHECK(score(answerable, "", false) == Scores{1, 0});
  CHECK(score(answerable, "abc", true) == Scores{1, 1});
}
