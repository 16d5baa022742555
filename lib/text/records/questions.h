// The records of the task "questions", which are a question, a paragraph, and the answers with their byte ranges in the
// paragraph (mh-shard(5)), and the input sequences made of them: sliding windows over the paragraph, as in BERT's
// run_squad.py for SQuAD (Devlin et al. 2019).
//
//   [CLS] question [SEP] tokens of the paragraph [SEP]
//
// with the special tokens of the vocabulary (encoder_vocabulary.h); RoBERTa has two separators after the question.
//
// A paragraph that is too long for an input sequence is split into windows. The starts of consecutive windows are
// `stride` tokens apart, or one window length if `stride` is larger; the last window ends with the paragraph. A token
// in several windows is scored only in the window with the most context; of several such windows, in the first. The
// context of a token is min(tokens of the window before it, tokens of the window after it) + 0.01 * tokens of the
// window.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "io/shard.h"
#include "text/encoder_vocabulary.h"
#include "text/records/example.h"
#include "text/records/sequences.h"
#include "text/records/squad.h"
#include "text/records/whole_shard.h"
#include "text/wordpiece.h"

namespace mh::text {

constexpr const char* kQuestionsKind = "questions";  // the kind of the records (io/record_kind.h)

constexpr size_t kNumQuestionFields = 6;

// A decoded record of a shard of questions.
struct QuestionRecord {
  std::vector<int32_t> question_tokens, paragraph_tokens;
  std::vector<TextRange> token_ranges;  // byte range in `text` of each paragraph token; begins and ends never decrease
  std::string text;                     // the paragraph
  std::string id;
  std::vector<GoldAnswer> answers;  // empty if and only if the question is unanswerable
  bool is_unanswerable = false;
};

struct QuestionSummary {
  uint64_t num_paragraphs = 0, num_questions = 0;
  uint64_t num_question_tokens = 0, num_paragraph_tokens = 0;            // tokens of a paragraph are counted once
  uint64_t num_unknown_in_questions = 0, num_unknown_in_paragraphs = 0;  // numbers of unknown tokens
  double seconds = 0;
};

// Sets the kind, the fields and the task of `header`, whose vocabulary must already be set.
void set_questions_header(io::ShardHeader& header, const Squad& squad, const SquadOptions& options);
// Returns whether a shard may contain unanswerable questions, so that predictions are scored as in SQuAD 2.0.
bool may_have_unanswerable(const io::ShardHeader& header);

// Writes every question as a record, and encodes each paragraph only once. The result does not depend on the number of
// threads. Throws Error(input) for a paragraph without tokens.
QuestionSummary encode_questions(const Squad& squad, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer);

// Decodes a record from its fields; `number`, the number of the record from 1, and `name`, the shard's name, are for
// messages. Throws Error(input) if the paragraph has no tokens or the fields contradict each other: different numbers
// of tokens and ranges, ranges outside the text or decreasing, an invalid JSON object or one without a required entry,
// an answer whose text is not at its byte range, an unanswerable question with answers, or a question without answers
// that is not unanswerable.
QuestionRecord decode_question_record(const std::array<std::span<const int32_t>, kNumQuestionFields>& fields,
                                      const std::string& name, uint64_t number);
// Decodes the record with the index `record`, from 0, of a shard in memory. `name` is the shard's name in messages.
QuestionRecord decode_question_record(const WholeShard& shard, size_t record, const std::string& name);

struct WindowOptions {
  int64_t max_length = 384;  // maximum number of tokens of an input sequence; set by train.batch.sequence_length
  int64_t stride = 128;
  int64_t max_question_tokens = 64;
  void describe(Fields& f) {
    f.field("stride", stride, "distance in tokens between the starts of consecutive windows of a paragraph",
            at_least(1));
    f.field("max_question_tokens", max_question_tokens,
            "maximum number of tokens of a question; longer questions are truncated", at_least(1));
  }
  // Throws Error(usage) unless `max_length` leaves room for tokens of the paragraph after a question of maximum length.
  // `num_special_tokens`: number of special tokens of an input sequence.
  void check(int64_t num_special_tokens) const;
};

// The token range [first, last] of an answer in its paragraph, both ends included; {-1, -1}: no answer.
struct AnswerSpan {
  int32_t first = -1, last = -1;
  bool is_empty() const { return first < 0; }
  bool operator==(const AnswerSpan&) const = default;
};

struct Paragraph {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TextRange> token_ranges;  // byte range in `text` of each token
  // Returns the text of the tokens of `span`.
  std::string text_of(AnswerSpan span) const;
};

struct Question {
  std::string id;
  std::vector<int32_t> tokens;  // at most WindowOptions::max_question_tokens
  std::vector<GoldAnswer> answers;
  bool is_unanswerable = false;
  size_t paragraph_index = 0;
  // Token range of the first answer with a known position in the paragraph and at least one token; empty if there is
  // none. A token belongs to the answer if at least one character of the token does, since an answer may begin or end
  // inside a token.
  AnswerSpan answer_span;
};

// The part of a paragraph that one input sequence contains.
struct ParagraphWindow {
  int64_t question_index = 0;               // index of the question
  int32_t first_token = 0, num_tokens = 0;  // index in the paragraph of the window's first token; number of tokens
};

// Selects the questions from which input sequences are made.
enum class QuestionUse {
  training,    // unanswerable questions, and answerable questions with a non-empty Question::answer_span
  prediction,  // all questions, including answerable questions with an empty Question::answer_span
};

// The questions of a shard, in memory. Each paragraph is stored once: the 130,319 training questions of SQuAD 2.0
// take about 100 MB.
class Questions {
 public:
  // Reads a shard of questions, given its header and its token sequences, which the caller has verified (verify() or
  // read_whole_shard()). `name` is the shard's name in messages. No argument needs to outlive the constructor. Throws
  // Error(usage) for invalid options, and Error(input) for a vocabulary without the tokens of an encoder, a shard of
  // another kind, and damaged records.
  Questions(const Sequences& sequences, const io::ShardHeader& header, const Tokenizer& tokenizer,
            const WindowOptions& options, QuestionUse use, const std::string& name);

  int64_t size() const { return static_cast<int64_t>(windows_.size()); }  // number of input sequences
  // Returns input sequence `row`. Segment 0 is [CLS] question [SEP]. The targets are the positions of the first and the
  // last token of the answer, or 0 and 0 (the position of [CLS]) if the window does not contain the complete answer.
  Example make(int64_t row) const;
  int64_t length(int64_t row) const { return paragraph_start(row) + window(row).num_tokens + 1; }
  const ParagraphWindow& window(int64_t row) const { return windows_[static_cast<size_t>(row)]; }
  // Returns the position in input sequence `row` of its first paragraph token.
  int64_t paragraph_start(int64_t row) const;
  // Returns, for each paragraph token of input sequence `row`, whether this is the input sequence in which the token
  // is scored: the first of the windows that give the token the most context.
  std::vector<bool> scored_tokens(int64_t row) const;

  const std::vector<Question>& questions() const { return questions_; }
  const Paragraph& paragraph_of(int64_t question) const;
  // Returns the range [first, second) of input sequences of a question; an empty range if the question has none.
  std::pair<int64_t, int64_t> rows_of(int64_t question) const;

  // Returns whether the shard may contain unanswerable questions, so that predictions are scored as in SQuAD 2.0.
  bool may_have_unanswerable() const { return may_have_unanswerable_; }
  // Returns the number of questions of more than WindowOptions::max_question_tokens tokens, which are truncated.
  int64_t num_truncated() const { return num_truncated_; }
  int64_t num_without_windows() const { return num_without_windows_; }  // number of questions without input sequences

 private:
  void add(QuestionRecord record);
  void add_windows(int64_t question);

  WindowOptions options_;
  QuestionUse question_use_;
  EncoderTokens special_tokens_;
  bool may_have_unanswerable_;
  std::vector<Paragraph> paragraphs_;
  std::vector<Question> questions_;
  std::vector<ParagraphWindow> windows_;
  std::vector<int64_t> first_rows_;  // index of the first input sequence of each question, then size()
  int64_t num_truncated_ = 0, num_without_windows_ = 0;
};

}  // namespace mh::text
