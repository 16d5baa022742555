// Tests of text::Questions: windows of SQuAD paragraphs and spans of answers, compared with naive references.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "fixtures/squads.h"
#include "fixtures/status.h"
#include "metrics/answers.h"

using namespace mh;
using namespace squads;

namespace {

// Returns the context score of a token in a window, computed as in _check_is_max_context() of BERT's run_squad.py.
double context_score(const text::ParagraphWindow& w, int32_t token_index) {
  return std::min(token_index - w.first_token, w.first_token + w.num_tokens - 1 - token_index) + 0.01 * w.num_tokens;
}

}  // namespace

TEST_CASE("questions: windows equal the windows of BERT, and every token is scored in exactly one window") {
  CHECK(rc::check("questions: windows equal the windows of BERT", [] {
    const RandomSquad squad = random_squad();
    const auto shard = shard_of(squad.json);
    const text::Questions questions = questions_of(shard, squad.options);
    const auto special_tokens = tokenizer()->special_tokens();
    int64_t row = 0, num_truncated = 0;
    for (size_t q = 0; q < shard.size(); ++q) {
      const text::QuestionRecord record = record_of(shard, q);
      const auto question_length = std::min<size_t>(record.question_tokens.size(), squad.options.max_question_tokens);
      num_truncated += record.question_tokens.size() > question_length ? 1 : 0;
      const auto room = static_cast<size_t>(squad.options.max_length) - 3 - question_length;
      std::vector<int> num_windows(record.paragraph_tokens.size()), num_scored(record.paragraph_tokens.size());
      RC_ASSERT(questions.rows_of(static_cast<int64_t>(q)).first == row);
      for (size_t start = 0; start < record.paragraph_tokens.size();) {
        const size_t length = std::min(room, record.paragraph_tokens.size() - start);
        std::vector<int32_t> tokens{special_tokens.cls_id};
        tokens.insert(tokens.end(), record.question_tokens.begin(),
                      record.question_tokens.begin() + static_cast<int64_t>(question_length));
        tokens.push_back(special_tokens.separator_id);
        const size_t first = tokens.size();
        for (size_t i = start; i < start + length; ++i) tokens.push_back(record.paragraph_tokens[i]), ++num_windows[i];
        tokens.push_back(special_tokens.separator_id);
        const text::Example example = questions.make(row);
        RC_ASSERT(example.tokens == tokens);
        RC_ASSERT(example.first_segment_length == static_cast<int32_t>(first));
        RC_ASSERT(questions.length(row) == static_cast<int64_t>(tokens.size()));
        RC_ASSERT(questions.paragraph_start(row) == static_cast<int64_t>(first));
        RC_ASSERT(static_cast<int64_t>(tokens.size()) <= squad.options.max_length);
        const auto is_scored = questions.scored_tokens(row);
        for (size_t i = 0; i < length; ++i) num_scored[start + i] += is_scored[i] ? 1 : 0;
        ++row;
        if (start + length == record.paragraph_tokens.size()) break;
        start += std::min(length, static_cast<size_t>(squad.options.stride));
      }
      RC_ASSERT(questions.rows_of(static_cast<int64_t>(q)).second == row);
      RC_ASSERT(std::all_of(num_windows.begin(), num_windows.end(), [](int n) { return n > 0; }));
      RC_ASSERT(std::all_of(num_scored.begin(), num_scored.end(), [](int n) { return n == 1; }));
    }
    RC_ASSERT(row == questions.size());
    RC_ASSERT(num_truncated == questions.num_truncated());
  }));
}

TEST_CASE("questions: a token is scored in the window with the most context") {
  CHECK(rc::check("questions: the scoring window has the most context", [] {
    const RandomSquad squad = random_squad();
    const text::Questions questions = questions_of(shard_of(squad.json), squad.options);
    for (int64_t row = 0; row < questions.size(); ++row) {
      const auto [begin, end] = questions.rows_of(questions.window(row).question_index);
      const auto is_scored = questions.scored_tokens(row);
      for (size_t i = 0; i < is_scored.size(); ++i) {
        const int32_t token_index = questions.window(row).first_token + static_cast<int32_t>(i);
        int64_t best_row = -1;
        double max_score = -1;
        for (int64_t r = begin; r < end; ++r) {
          const text::ParagraphWindow& w = questions.window(r);
          if (token_index < w.first_token || token_index >= w.first_token + w.num_tokens ||
              context_score(w, token_index) <= max_score)
            continue;
          max_score = context_score(w, token_index);
          best_row = r;
        }
        RC_ASSERT(is_scored[i] == (best_row == row));
      }
    }
  }));
}

TEST_CASE("questions: the span of an answer contains the tokens that share a character with the answer") {
  CHECK(rc::check("questions: spans of answers", [] {
    const RandomSquad squad = random_squad();
    const auto shard = shard_of(squad.json);
    const text::Questions questions = questions_of(shard, squad.options);
    for (size_t q = 0; q < shard.size(); ++q) {
      const text::Question& question = questions.questions()[q];
      const text::Paragraph& paragraph = questions.paragraph_of(static_cast<int64_t>(q));
      const text::TextRange range = *question.answers[0].byte_range;
      // Indices of the tokens that share a character with the answer.
      std::vector<int32_t> overlapping_tokens;
      for (size_t i = 0; i < paragraph.token_ranges.size(); ++i)
        if (paragraph.token_ranges[i].begin < range.end && paragraph.token_ranges[i].end > range.begin)
          overlapping_tokens.push_back(static_cast<int32_t>(i));
      RC_ASSERT(question.answer_span.is_empty() == overlapping_tokens.empty());
      if (overlapping_tokens.empty()) continue;
      RC_ASSERT(question.answer_span == (text::AnswerSpan{overlapping_tokens.front(), overlapping_tokens.back()}));
      const auto [begin, end] = questions.rows_of(static_cast<int64_t>(q));
      for (int64_t row = begin; row < end; ++row) {
        const text::ParagraphWindow& w = questions.window(row);
        const auto targets = questions.make(row).targets;
        const bool contains_answer =
            overlapping_tokens.front() >= w.first_token && overlapping_tokens.back() < w.first_token + w.num_tokens;
        RC_ASSERT((targets == std::vector<int64_t>{0, 0}) == !contains_answer);
        if (!contains_answer) continue;
        const int32_t shift = static_cast<int32_t>(questions.paragraph_start(row)) - w.first_token;
        RC_ASSERT(
            (targets == std::vector<int64_t>{overlapping_tokens.front() + shift, overlapping_tokens.back() + shift}));
      }
      // The text of the span may lack white space and accents at the start and the end of the answer, and may have more
      // letters if its first token begins before the answer or its last token ends after the answer.
      const std::string span_text = paragraph.text_of(question.answer_span);
      const bool has_whole_tokens = paragraph.token_ranges[overlapping_tokens.front()].begin >= range.begin &&
                                    paragraph.token_ranges[overlapping_tokens.back()].end <= range.end;
      if (has_whole_tokens) RC_ASSERT(question.answers[0].text.find(span_text) != std::string::npos);
      else RC_ASSERT(span_text.size() > 1u);
    }
  }));
}

TEST_CASE("questions: training excludes questions without an answer in the paragraph") {
  const auto json = file({article(
      "abc cab", {question("1", "a", {answer("cab", 4)}), question("2", "a", {answer("abc", 1)}),
                  question("3", "a", {answer("abc", 2), answer("cab", 4)}), question("4", "a", {answer(" ", 3)})})});
  const auto shard = shard_of(json, {1, "refuse"});
  const text::Questions all_questions = questions_of(shard, {}),
                        training_questions = questions_of(shard, {}, text::QuestionUse::training);
  CHECK(all_questions.size() == 4);
  CHECK(all_questions.num_without_windows() == 0);
  CHECK(training_questions.size() == 2);
  CHECK(training_questions.num_without_windows() == 2);
  CHECK(training_questions.window(0).question_index == 0);
  CHECK(training_questions.window(1).question_index == 2);
  CHECK(training_questions.make(1).targets == training_questions.make(0).targets);
  CHECK(training_questions.rows_of(1).first == training_questions.rows_of(1).second);
  const metrics::AnswerSearch search(training_questions, {});
  CHECK(status_of([&] { search.answers(1); }) == 1);
}

TEST_CASE("questions: a row length without room for a paragraph is refused") {
  const auto shard = shard_of(file({article("abc", {question("1", "a", {answer("a", 0)})})}));
  CHECK(status_of([&] { questions_of(shard, {.max_length = 67}); }) == 2);
  CHECK(status_of([&] { questions_of(shard, {.max_length = 68}); }) == 0);
}
