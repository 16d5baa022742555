// Windows of questions against plain loops.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "fixtures/squads.h"
#include "fixtures/status.h"
#include "metrics/answers.h"

using namespace mh;
using namespace squads;

namespace {

// Whether a window's context around a token is more than another's, as run_squad.py says it.
double around(const text::Window& w, int32_t token) {
  return std::min(token - w.first, w.first + w.count - 1 - token) + 0.01 * w.count;
}

}  // namespace

TEST_CASE("questions: windows are BERT's and show every token") {
  CHECK(rc::check("questions: windows", [] {
    const Made m = made();
    const auto shard = shard_of(m.json);
    const text::Questions questions = questions_of(shard, m.options);
    const auto special = tokenizer()->special();
    int64_t row = 0, cut = 0;
    for (size_t q = 0; q < shard.size(); ++q) {
      const text::QuestionRecord record = record_of(shard, q);
      const auto asked = std::min<size_t>(record.question.size(), m.options.question);
      cut += record.question.size() > asked ? 1 : 0;
      const auto room = static_cast<size_t>(m.options.length) - 3 - asked;
      std::vector<int> seen(record.context.size()), counted(record.context.size());
      RC_ASSERT(questions.rows_of(static_cast<int64_t>(q)).first == row);
      for (size_t start = 0; start < record.context.size();) {
        const size_t length = std::min(room, record.context.size() - start);
        std::vector<int32_t> tokens{special.start};
        tokens.insert(tokens.end(), record.question.begin(), record.question.begin() + static_cast<int64_t>(asked));
        tokens.push_back(special.separator);
        const size_t first = tokens.size();
        for (size_t i = start; i < start + length; ++i) tokens.push_back(record.context[i]), ++seen[i];
        tokens.push_back(special.separator);
        const text::Example example = questions.make(row);
        RC_ASSERT(example.tokens == tokens);
        RC_ASSERT(example.first == static_cast<int32_t>(first));
        RC_ASSERT(questions.length(row) == static_cast<int64_t>(tokens.size()));
        RC_ASSERT(questions.paragraph_begins(row) == static_cast<int64_t>(first));
        RC_ASSERT(static_cast<int64_t>(tokens.size()) <= m.options.length);
        const auto counts = questions.counts_here(row);
        for (size_t i = 0; i < length; ++i) counted[start + i] += counts[i] ? 1 : 0;
        ++row;
        if (start + length == record.context.size()) break;
        start += std::min(length, static_cast<size_t>(m.options.stride));
      }
      RC_ASSERT(questions.rows_of(static_cast<int64_t>(q)).second == row);
      RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int n) { return n > 0; }));
      RC_ASSERT(std::all_of(counted.begin(), counted.end(), [](int n) { return n == 1; }));
    }
    RC_ASSERT(row == questions.size());
    RC_ASSERT(cut == questions.cut());
  }));
}

TEST_CASE("questions: a token counts in the window that shows most around it") {
  CHECK(rc::check("questions: most context", [] {
    const Made m = made();
    const text::Questions questions = questions_of(shard_of(m.json), m.options);
    for (int64_t row = 0; row < questions.size(); ++row) {
      const auto [begin, end] = questions.rows_of(questions.window(row).question);
      const auto counts = questions.counts_here(row);
      for (size_t i = 0; i < counts.size(); ++i) {
        const int32_t token = questions.window(row).first + static_cast<int32_t>(i);
        int64_t best = -1;
        double most = -1;
        for (int64_t r = begin; r < end; ++r) {
          const text::Window& w = questions.window(r);
          if (token < w.first || token >= w.first + w.count || around(w, token) <= most) continue;
          most = around(w, token);
          best = r;
        }
        RC_ASSERT(counts[i] == (best == row));
      }
    }
  }));
}

TEST_CASE("questions: spans are the answers' text") {
  CHECK(rc::check("questions: spans", [] {
    const Made m = made();
    const auto shard = shard_of(m.json);
    const text::Questions questions = questions_of(shard, m.options);
    for (size_t q = 0; q < shard.size(); ++q) {
      const text::Question& asked = questions.questions()[q];
      const text::Paragraph& paragraph = questions.paragraph_of(static_cast<int64_t>(q));
      const text::TextRange place = *asked.answers[0].place;
      // Tokens one of whose characters is the answer's.
      std::vector<int32_t> touched;
      for (size_t i = 0; i < paragraph.places.size(); ++i)
        if (paragraph.places[i].begin < place.end && paragraph.places[i].end > place.begin)
          touched.push_back(static_cast<int32_t>(i));
      RC_ASSERT(asked.answer.none() == touched.empty());
      if (touched.empty()) continue;
      RC_ASSERT(asked.answer == (text::Span{touched.front(), touched.back()}));
      const auto [begin, end] = questions.rows_of(static_cast<int64_t>(q));
      for (int64_t row = begin; row < end; ++row) {
        const text::Window& w = questions.window(row);
        const auto targets = questions.make(row).targets;
        const bool whole = touched.front() >= w.first && touched.back() < w.first + w.count;
        RC_ASSERT((targets == std::vector<int64_t>{0, 0}) == !whole);
        if (!whole) continue;
        const int32_t shift = static_cast<int32_t>(questions.paragraph_begins(row)) - w.first;
        RC_ASSERT((targets == std::vector<int64_t>{touched.front() + shift, touched.back() + shift}));
      }
      // What a token leaves out on either side of an answer are white space and dropped accents; what it holds more are
      // letters of a piece that goes on.
      const std::string found = paragraph.text_of(asked.answer);
      const bool of_whole_tokens =
          paragraph.places[touched.front()].begin >= place.begin && paragraph.places[touched.back()].end <= place.end;
      if (of_whole_tokens) RC_ASSERT(asked.answers[0].text.find(found) != std::string::npos);
      else RC_ASSERT(found.size() > 1u);
    }
  }));
}

TEST_CASE("questions: those without a place are not learnt from") {
  const auto json = file({article(
      "abc cab", {question("1", "a", {answer("cab", 4)}), question("2", "a", {answer("abc", 1)}),
                  question("3", "a", {answer("abc", 2), answer("cab", 4)}), question("4", "a", {answer(" ", 3)})})});
  const auto shard = shard_of(json, {1, "refuse"});
  const text::Questions all = questions_of(shard, {}), some = questions_of(shard, {}, text::QuestionUse::learn);
  CHECK(all.size() == 4);
  CHECK(all.left_out() == 0);
  CHECK(some.size() == 2);
  CHECK(some.left_out() == 2);
  CHECK(some.window(0).question == 0);
  CHECK(some.window(1).question == 2);
  CHECK(some.make(1).targets == some.make(0).targets);
  CHECK(some.rows_of(1).first == some.rows_of(1).second);
  const metrics::AnswerSearch search(some, {});
  CHECK(status_of([&] { search.answers(1); }) == 1);
}

TEST_CASE("questions: options that leave no room") {
  const auto shard = shard_of(file({article("abc", {question("1", "a", {answer("a", 0)})})}));
  CHECK(status_of([&] { questions_of(shard, {.length = 67}); }) == 2);
  CHECK(status_of([&] { questions_of(shard, {.length = 68}); }) == 0);
}
