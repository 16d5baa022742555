// Answers from scores against plain loops, and their files.
#include "metrics/answers.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/squads.h"
#include "fixtures/status.h"
#include "metrics/predictions.h"

using namespace mh;
using namespace squads;

namespace {

const text::SquadOptions kKeep{1, "keep"};

std::vector<float> scores(size_t count) {  // many of them equal
  auto numbers = *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(-4, 5));
  return {numbers.begin(), numbers.end()};
}

struct Scored {
  std::vector<std::vector<float>> start, end;  // of each row
};

Scored scored(const text::Questions& questions) {
  Scored s;
  for (int64_t row = 0; row < questions.size(); ++row) {
    s.start.push_back(scores(static_cast<size_t>(questions.length(row))));
    s.end.push_back(scores(static_cast<size_t>(questions.length(row))));
  }
  return s;
}

struct Pair {
  double score;
  int64_t row;
  int32_t first, last;  // positions in the row
  std::string text;
};

// All pairs, by two loops and a sort.
std::vector<Pair> all_pairs(const text::Questions& questions, const Scored& s, int64_t question, int64_t longest) {
  std::vector<Pair> pairs;
  const auto [begin, end] = questions.rows_of(question);
  for (int64_t row = begin; row < end; ++row) {
    const auto shift = static_cast<int32_t>(questions.paragraph_begins(row));
    const text::Window& w = questions.window(row);
    const auto counts = questions.counts_here(row);
    for (int32_t i = 0; i < w.count; ++i)
      for (int32_t k = i; k < w.count && k - i + 1 <= longest; ++k)
        if (counts[i])
          pairs.push_back({static_cast<double>(s.start[row][shift + i]) + s.end[row][shift + k], row, shift + i,
                           shift + k, questions.paragraph_of(question).text_of({w.first + i, w.first + k})});
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.score > b.score; });
  return pairs;
}

std::vector<Pair> first_texts(const std::vector<Pair>& pairs, size_t count) {
  std::vector<Pair> out;
  for (const Pair& p : pairs)
    if (out.size() < count && std::none_of(out.begin(), out.end(), [&](const Pair& o) { return o.text == p.text; }))
      out.push_back(p);
  return out;
}

}  // namespace

TEST_CASE("answers: the best are those of two plain loops") {
  CHECK(rc::check("answers: n-best", [] {
    const Made m = made();
    const text::Questions questions = questions_of(shard_of(m.json), m.options);
    const Scored s = scored(questions);
    const metrics::AnswerOptions options{*rc::gen::inRange(1, 25), *rc::gen::inRange(1, 8), 0};
    metrics::AnswerSearch search(questions, options);
    for (int64_t row = questions.size() - 1; row >= 0; --row) search.add(row, s.start[row], s.end[row]);
    for (size_t q = 0; q < questions.questions().size(); ++q) {
      const auto expected = first_texts(all_pairs(questions, s, static_cast<int64_t>(q), options.longest),
                                        static_cast<size_t>(options.best));
      const metrics::Answers found = search.answers(static_cast<int64_t>(q));
      RC_ASSERT(found.best.size() == expected.size());
      double sum = 0;
      for (const Pair& p : expected) sum += std::exp(p.score);
      for (size_t i = 0; i < expected.size(); ++i) {
        RC_ASSERT(found.best[i].text == expected[i].text);
        RC_ASSERT(found.best[i].start == s.start[expected[i].row][expected[i].first]);
        RC_ASSERT(found.best[i].end == s.end[expected[i].row][expected[i].last]);
        RC_ASSERT(std::abs(found.best[i].probability - std::exp(expected[i].score) / sum) < 1e-12);
      }
      RC_ASSERT(found.text == expected[0].text);
    }
  }));
}

TEST_CASE("answers: none, where questions may be impossible") {
  CHECK(rc::check("answers: none", [] {
    const Made m = made(true);
    const text::Questions questions = questions_of(shard_of(m.json, kKeep), m.options);
    RC_ASSERT(questions.unanswerable());
    const Scored s = scored(questions);
    const metrics::AnswerOptions options{*rc::gen::inRange(1, 6), 30, static_cast<double>(*rc::gen::inRange(-3, 4))};
    metrics::AnswerSearch search(questions, options);
    for (int64_t row = 0; row < questions.size(); ++row) search.add(row, s.start[row], s.end[row]);
    for (size_t q = 0; q < questions.questions().size(); ++q) {
      const auto [begin, end] = questions.rows_of(static_cast<int64_t>(q));
      double none = 100;
      for (int64_t row = begin; row < end; ++row)
        none = std::min(none, static_cast<double>(s.start[row][0]) + s.end[row][0]);
      auto expected =
          first_texts(all_pairs(questions, s, static_cast<int64_t>(q), 30), static_cast<size_t>(options.best));
      const double best = expected[0].score;
      const std::string text = none - best > options.null_threshold ? "" : expected[0].text;
      // Behind answers that are as good; one answer less where it is among the best.
      auto at = std::find_if(expected.begin(), expected.end(), [&](const Pair& p) { return p.score < none; });
      const auto place = static_cast<size_t>(at - expected.begin());
      expected.insert(at, {none, 0, 0, 0, ""});
      if (place < static_cast<size_t>(options.best) && expected.size() > static_cast<size_t>(options.best))
        expected.pop_back();
      const metrics::Answers found = search.answers(static_cast<int64_t>(q));
      RC_ASSERT(found.text == text);
      RC_ASSERT(found.null_difference == none - best);
      RC_ASSERT(found.best.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) RC_ASSERT(found.best[i].text == expected[i].text);
    }
  }));
}

TEST_CASE("answers: scores that are refused") {
  const auto shard = shard_of(file({article("abc", {question("1", "a", {answer("a", 0)})})}));
  const text::Questions questions = questions_of(shard, {});
  metrics::AnswerSearch search(questions, {});
  std::vector<float> good(static_cast<size_t>(questions.length(0))), bad = good;
  CHECK(status_of([&] { search.answers(0); }) == 1);
  CHECK(status_of([&] { search.add(0, std::span(good).first(3), good); }) == 1);
  for (float value : {std::nanf(""), INFINITY, -INFINITY}) {
    bad.back() = value;
    CHECK(status_of([&] { search.add(0, bad, good); }) == 1);
    CHECK(status_of([&] { search.add(0, good, bad); }) == 1);
  }
  search.add(0, good, good);
  CHECK(search.answers(0).text == "abc");
}

TEST_CASE("predictions: written, read, scored") {
  const auto json = file({article(
      "abc cab \"ab\"", {question("1", "a", {answer("cab", 4), answer("abc cab", 0)}),
                         question("\"2\"", "a", {answer("abc", 0)}), question("3", "a", {answer("\"ab\"", 8)})})});
  const auto shard = shard_of(json);
  const text::Questions questions = questions_of(shard, {});
  std::vector<metrics::Answers> answers(3);
  answers[0].text = "CAB abc.";
  answers[1].text = "ab\n\"é";
  answers[2].text = "ab";
  answers[2].best = {{"ab", 1.5, 2, 0.75}, {"", 1, 2, 0.25}};
  const Folder folder;
  write_file_atomically(folder.file("answers.json"), metrics::predictions_json(questions, answers));
  const auto read = metrics::read_predictions(folder.file("answers.json"));
  CHECK(read == metrics::Predictions{{"1", "CAB abc."}, {"\"2\"", "ab\n\"é"}, {"3", "ab"}});
  CHECK(
      ordered_json::parse(metrics::best_json(questions, answers)) ==
      ordered_json::parse(R"({"1":[],"\"2\"":[],"3":[{"text":"ab","probability":0.75,"start_logit":1.5,"end_logit":2.0},
                                {"text":"","probability":0.25,"start_logit":1.0,"end_logit":2.0}]})"));
  const auto scores = metrics::score_predictions(questions, read);
  CHECK(scores.all.questions() == 3);
  CHECK(scores.all.percent().exact == Approx(100.0 / 3));
  CHECK(scores.all.percent().f1 == Approx(200.0 / 3));
  CHECK(scores.possible.questions() == 3);
  CHECK(scores.impossible.questions() == 0);
  const auto fewer = metrics::score_predictions(questions, {{"1", "cab"}, {"other", "x"}});
  CHECK(fewer.without == 2);
  CHECK(fewer.unknown == 1);
  CHECK(fewer.all.percent().exact == Approx(100.0 / 3));
  CHECK(status_of([&] { metrics::predictions_json(questions, {}); }) == 1);
  for (const char* broken : {"", "{", "[]", "3", R"({"1": 2})", R"({"1": "a")", "\xff"}) {
    write_file_atomically(folder.file("broken"), broken);
    CHECK(status_of([&] { metrics::read_predictions(folder.file("broken")); }) == 3);
  }
  CHECK(status_of([&] { metrics::read_predictions(folder.file("missing")); }) == 3);
}

TEST_CASE("predictions: rules of impossible questions") {
  text::Question impossible, article, plain;
  impossible.impossible = true;
  article.answers = {{"the", {}}};
  plain.answers = {{"the abc", {}}, {"a", {}}};
  auto score = [](const text::Question& q, const std::string& answer, bool unanswerable) {
    const auto s = metrics::answer_score(q, answer, unanswerable);
    return std::pair(s.exact, s.f1);
  };
  using P = std::pair<double, double>;
  CHECK(score(impossible, "", true) == P{1, 1});
  CHECK(score(impossible, "the", true) == P{1, 1});
  CHECK(score(impossible, "abc", true) == P{0, 0});
  CHECK(score(article, "an", true) == P{1, 1});
  CHECK(score(article, "an", false) == P{1, 0});  // SQuAD 1.1's
  CHECK(score(plain, "", true) == P{0, 0});
  CHECK(score(plain, "", false) == P{1, 0});
  CHECK(score(plain, "abc", true) == P{1, 1});
}
