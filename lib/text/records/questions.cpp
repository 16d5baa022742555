#include "text/records/questions.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace mh::text {

namespace {

// Returns the range of the tokens that contain a character of `answer`; `token_ranges`: byte range of each token.
AnswerSpan span_of(const TextRange& answer, const std::vector<TextRange>& token_ranges) {
  const auto first_token = std::find_if(token_ranges.begin(), token_ranges.end(),
                                        [&](const auto& range) { return range.end > answer.begin; });
  const auto end_token =
      std::find_if(first_token, token_ranges.end(), [&](const auto& range) { return range.begin >= answer.end; });
  if (first_token == end_token) return {};  // no character of the answer belongs to a token
  return {static_cast<int32_t>(first_token - token_ranges.begin()),
          static_cast<int32_t>(end_token - token_ranges.begin()) - 1};
}

// Returns BERT's measure of the context that the window gives a token: the smaller of the numbers of window tokens
// before and after the token, plus a hundredth of the length of the window to break ties.
double context_score(const ParagraphWindow& window, int32_t token_index) {
  const int32_t num_tokens_before = token_index - window.first_token,
                num_tokens_after = window.first_token + window.num_tokens - 1 - token_index;
  return std::min(num_tokens_before, num_tokens_after) + 0.01 * window.num_tokens;
}

}  // namespace

void WindowOptions::check(int64_t num_special_tokens) const {
  if (max_length <= max_question_tokens + num_special_tokens)
    refuse_usage("train.batch.sequence_length",
                 str("more than ", max_question_tokens + num_special_tokens,
                     " tokens, the limit squad.max_question_tokens plus ", num_special_tokens, " special tokens"),
                 str(max_length), "raise train.batch.sequence_length, or lower squad.max_question_tokens");
}

std::string Paragraph::text_of(AnswerSpan span) const {
  const uint32_t begin = token_ranges[static_cast<size_t>(span.first)].begin,
                 end = token_ranges[static_cast<size_t>(span.last)].end;
  return text.substr(begin, end - begin);
}

Questions::Questions(const Sequences& sequences, const io::ShardHeader& header, const Tokenizer& tokenizer,
                     const WindowOptions& options, QuestionUse use, const std::string& name)
    : options_(options),
      question_use_(use),
      special_tokens_(encoder_tokens(tokenizer, name)),
      may_have_unanswerable_(text::may_have_unanswerable(header)) {
  options_.check(special_tokens_.num_special_tokens(2));
  io::require_kind(header, name, io::kQuestionsKind);
  constexpr size_t num_fields = kNumQuestionFields;
  std::vector<int32_t> numbers;
  for (size_t sequence = 0; sequence < sequences.ends.size(); sequence += num_fields) {
    const uint64_t begin = sequences.begin(sequence);
    numbers.resize(sequences.ends[sequence + num_fields - 1] - begin);
    sequences.read(begin, numbers);
    std::array<std::span<const int32_t>, num_fields> record_fields;
    for (size_t i = 0; i < num_fields; ++i)
      record_fields[i] = std::span(numbers).subspan(sequences.begin(sequence + i) - begin,
                                                    static_cast<size_t>(sequences.length(sequence + i)));
    add(decode_question_record(record_fields, name, sequence / num_fields + 1));
  }
  first_rows_.push_back(size());
}

void Questions::add(QuestionRecord record) {
  if (paragraphs_.empty() || paragraphs_.back().text != record.text ||
      paragraphs_.back().tokens != record.paragraph_tokens)
    paragraphs_.push_back({std::move(record.text), std::move(record.paragraph_tokens), std::move(record.token_ranges)});
  Question q{std::move(record.id),      std::move(record.question_tokens),
             std::move(record.answers), record.is_unanswerable,
             paragraphs_.size() - 1,    {}};
  const auto max_tokens = static_cast<size_t>(options_.max_question_tokens);
  num_truncated_ += q.tokens.size() > max_tokens ? 1 : 0;
  q.tokens.resize(std::min(q.tokens.size(), max_tokens));
  for (const GoldAnswer& answer : q.answers)
    if (answer.byte_range && q.answer_span.is_empty())
      q.answer_span = span_of(*answer.byte_range, paragraphs_.back().token_ranges);
  questions_.push_back(std::move(q));
  first_rows_.push_back(size());
  const Question& last_question = questions_.back();
  if (question_use_ == QuestionUse::training && !last_question.is_unanswerable && last_question.answer_span.is_empty())
    ++num_without_windows_;
  else add_windows(static_cast<int64_t>(questions_.size()) - 1);
}

void Questions::add_windows(int64_t question) {
  const auto num_question_tokens = static_cast<int64_t>(questions_[static_cast<size_t>(question)].tokens.size());
  const auto num_paragraph_tokens = static_cast<int64_t>(paragraph_of(question).tokens.size());
  const int64_t max_window_tokens = options_.max_length - special_tokens_.num_special_tokens(2) - num_question_tokens;
  for (int64_t first_token = 0;; first_token += std::min(max_window_tokens, options_.stride)) {
    const int64_t num_tokens = std::min(max_window_tokens, num_paragraph_tokens - first_token);
    windows_.push_back({question, static_cast<int32_t>(first_token), static_cast<int32_t>(num_tokens)});
    if (first_token + num_tokens == num_paragraph_tokens) return;
  }
}

int64_t Questions::paragraph_start(int64_t row) const {
  return static_cast<int64_t>(questions_[static_cast<size_t>(window(row).question_index)].tokens.size()) + 1 +
         special_tokens_.num_pair_separators;
}

const Paragraph& Questions::paragraph_of(int64_t question) const {
  return paragraphs_[questions_[static_cast<size_t>(question)].paragraph_index];
}

std::pair<int64_t, int64_t> Questions::rows_of(int64_t question) const {
  const auto i = static_cast<size_t>(question);
  return {first_rows_[i], first_rows_[i + 1]};
}

Example Questions::make(int64_t row) const {
  const ParagraphWindow& w = window(row);
  const Question& q = questions_[static_cast<size_t>(w.question_index)];
  const std::vector<int32_t>& paragraph = paragraph_of(w.question_index).tokens;
  Example example;
  std::vector<int32_t>& tokens = example.tokens;
  tokens.reserve(static_cast<size_t>(length(row)));
  tokens.push_back(special_tokens_.begin_id);
  tokens.insert(tokens.end(), q.tokens.begin(), q.tokens.end());
  tokens.insert(tokens.end(), static_cast<size_t>(special_tokens_.num_pair_separators), special_tokens_.separator_id);
  example.first_segment_length = static_cast<int32_t>(tokens.size());
  tokens.insert(tokens.end(), paragraph.begin() + w.first_token, paragraph.begin() + w.first_token + w.num_tokens);
  tokens.push_back(special_tokens_.separator_id);
  const bool contains_answer = !q.answer_span.is_empty() && q.answer_span.first >= w.first_token &&
                               q.answer_span.last < w.first_token + w.num_tokens;
  const int32_t offset = example.first_segment_length - w.first_token;
  example.targets = {contains_answer ? q.answer_span.first + offset : 0,
                     contains_answer ? q.answer_span.last + offset : 0};
  return example;
}

std::vector<bool> Questions::scored_tokens(int64_t row) const {
  const ParagraphWindow& row_window = window(row);
  const auto [begin, end] = rows_of(row_window.question_index);
  std::vector<bool> is_scored(static_cast<size_t>(row_window.num_tokens), true);
  for (int32_t i = 0; i < row_window.num_tokens; ++i) {
    const int32_t token_index = row_window.first_token + i;
    const double row_context = context_score(row_window, token_index);
    for (int64_t other_row = begin; other_row < end; ++other_row) {
      const ParagraphWindow& w = window(other_row);
      if (other_row == row || token_index < w.first_token || token_index >= w.first_token + w.num_tokens) continue;
      const double other_context = context_score(w, token_index);
      if (other_context > row_context || (other_context == row_context && other_row < row))
        is_scored[static_cast<size_t>(i)] = false;
    }
  }
  return is_scored;
}

}  // namespace mh::text
