// Questions on paragraphs, and their rows for a model: sliding windows, as in BERT's run_squad.py for SQuAD (Devlin et
// al. 2019).
//
//   [CLS] question [SEP] tokens of the paragraph [SEP]
//
// A paragraph that is too long for a row is split into windows that start `stride` tokens apart; the last window ends
// with the paragraph. A token in several windows is scored only in the window with the most context: the largest
// min(distance to the first token, distance to the last token) + 0.01 * tokens of the window; the first of ties.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "text/records/example.h"
#include "text/records/questions/records.h"
#include "text/records/sequences.h"
#include "text/records/whole_shard.h"

namespace mh::text {

struct WindowOptions {
  int64_t length = 384;  // maximum tokens of a row; set by train.batch.block
  int64_t stride = 128;
  int64_t question = 64;
  void describe(Fields& f) {
    f.field("stride", stride, "distance in tokens between the starts of consecutive windows of a paragraph",
            at_least(1));
    f.field("question", question, "maximum number of tokens of a question; longer questions are truncated",
            at_least(1));
  }
  // Throws Error(usage) if a row has no room for a paragraph after a question.
  void check() const;
};

// Tokens [first, last], both included; {-1, -1}: no answer.
struct Span {
  int32_t first = -1, last = -1;
  bool none() const { return first < 0; }
  bool operator==(const Span&) const = default;
};

struct Paragraph {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TextRange> places;  // byte range in `text` of each token
  // Returns the part of `text` from the first to the last of these tokens.
  std::string text_of(Span tokens) const;
};

struct Question {
  std::string id;
  std::vector<int32_t> tokens;  // at most WindowOptions::question
  std::vector<TrueAnswer> answers;
  bool impossible = false;
  size_t paragraph = 0;
  // Tokens of the first answer with a place in the paragraph. A token belongs to an answer if one of its characters
  // does, since an answer may begin or end inside a token.
  Span answer;
};

// The part of a paragraph in one row.
struct Window {
  int64_t question = 0;
  int32_t first = 0, count = 0;  // index of its first token in the paragraph, number of tokens
};

// Selects the questions that have rows.
enum class QuestionUse {
  learn,   // questions with an answer in the paragraph, and impossible questions
  answer,  // all questions
};

// Questions in memory. Each paragraph is stored once: the 130,319 questions of SQuAD 2.0 take about 100 MB.
class Questions {
 public:
  // Reads a shard of questions, whose sequences must be verified (verify(), read_whole_shard()). `name` is for
  // messages. No argument needs to outlive the constructor. Throws Error(input) for damaged records.
  Questions(const Sequences& runs, const io::ShardHeader& header, const WordPieceTokenizer& tokenizer,
            const WindowOptions& options, QuestionUse use, const std::string& name);

  int64_t size() const { return static_cast<int64_t>(windows_.size()); }  // rows
  // Returns a row. Its segment 0 is [CLS] question [SEP]; its targets are the positions of the first and last token of
  // the answer, or 0 and 0, [CLS], if the window does not contain the whole answer.
  Example make(int64_t row) const;
  int64_t length(int64_t row) const { return paragraph_begins(row) + window(row).count + 1; }
  const Window& window(int64_t row) const { return windows_[static_cast<size_t>(row)]; }
  // Returns the position of the paragraph's first token in the row.
  int64_t paragraph_begins(int64_t row) const;
  // Returns, for each paragraph token of the row, whether the token is scored in this row: no other row of the question
  // has more context around it.
  std::vector<bool> counts_here(int64_t row) const;

  const std::vector<Question>& questions() const { return questions_; }
  const Paragraph& paragraph_of(int64_t question) const;
  // Returns the rows [first, second) of a question; an empty range for a question without rows.
  std::pair<int64_t, int64_t> rows_of(int64_t question) const;

  // Returns whether questions may be impossible, and predictions are therefore scored as in SQuAD 2.0.
  bool unanswerable() const { return unanswerable_; }
  int64_t cut() const { return cut_; }            // number of truncated questions
  int64_t left_out() const { return left_out_; }  // number of questions without rows

 private:
  void add(QuestionRecord record);
  void add_windows(int64_t question);

  WindowOptions options_;
  QuestionUse use_;
  WordPieceTokenizer::Special special_;
  bool unanswerable_;
  std::vector<Paragraph> paragraphs_;
  std::vector<Question> questions_;
  std::vector<Window> windows_;
  std::vector<int64_t> first_row_;  // first row of each question, then the number of rows
  int64_t cut_ = 0, left_out_ = 0;
};

}  // namespace mh::text
