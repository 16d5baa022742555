// Questions on paragraphs, and the rows for a model: windows, as BERT has them for SQuAD (Devlin et al. 2019; its
// run_squad.py).
//
//   [CLS] question [SEP] tokens of the paragraph [SEP]
//
// A paragraph that is too long for a row becomes several windows, each `stride` tokens after the one before; the last
// one ends with the paragraph. A token in several windows is scored in the window with the most context: where the
// smaller of its distances to the window's first and last token, plus a hundredth of the window's size, is largest; the
// first of ties.
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
    f.field("stride", stride, "tokens from where a window of a paragraph begins to where the next one does",
            at_least(1));
    f.field("question", question, "tokens of a question at most; longer ones are cut", at_least(1));
  }
  // Throws Error(usage) for rows without room for a paragraph after a question.
  void check() const;
};

// Tokens [first, last], both included; empty for no answer.
struct Span {
  int32_t first = -1, last = -1;
  bool none() const { return first < 0; }
  bool operator==(const Span&) const = default;
};

struct Paragraph {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TextRange> places;  // bytes of the text for each token
  // Returns the text of these tokens, as it is in the paragraph.
  std::string text_of(Span tokens) const;
};

struct Question {
  std::string id;
  std::vector<int32_t> tokens;  // at most WindowOptions::question
  std::vector<TrueAnswer> answers;
  bool impossible = false;
  size_t paragraph = 0;
  // Tokens of the first answer that is in the paragraph. A token belongs to an answer if one of its characters does: an
  // answer may begin or end inside a token.
  Span answer;
};

struct Window {
  int64_t question = 0;
  int32_t first = 0, count = 0;  // range of the paragraph's tokens
};

// The questions that have rows.
enum class QuestionUse {
  learn,   // questions with an answer in the paragraph, or without an answer
  answer,  // all questions
};

// Questions in memory, with each paragraph once: the 130,319 questions of SQuAD 2.0 take about 100 MB.
class Questions {
 public:
  // Reads a shard of questions, whose sequences were checked (ShardFile::verify, read_whole_shard), and its tokenizer;
  // `name` is for messages. Nothing needs to outlive the constructor. Throws Error(input) for damaged records.
  Questions(const Sequences& runs, const io::ShardHeader& header, const WordPieceTokenizer& tokenizer,
            const WindowOptions& options, QuestionUse use, const std::string& name);

  int64_t size() const { return static_cast<int64_t>(windows_.size()); }  // rows
  // Returns a row: its tokens, the number of the question's with both marks, and as targets the first and last position
  // of the answer: 0 and 0, [CLS], if the window does not contain all of it.
  Example make(int64_t row) const;
  int64_t length(int64_t row) const { return paragraph_begins(row) + window(row).count + 1; }
  const Window& window(int64_t row) const { return windows_[static_cast<size_t>(row)]; }
  // Returns the position of the paragraph's first token in the row.
  int64_t paragraph_begins(int64_t row) const;
  // Returns for each token of the paragraph in the row whether no other row has more context around it.
  std::vector<bool> counts_here(int64_t row) const;

  const std::vector<Question>& questions() const { return questions_; }
  const Paragraph& paragraph_of(int64_t question) const;
  // Returns rows [first, second) of a question; none if it is not used.
  std::pair<int64_t, int64_t> rows_of(int64_t question) const;

  bool unanswerable() const {
    return unanswerable_;
  }                                               // whether questions may be impossible: then scored as in SQuAD 2.0
  int64_t cut() const { return cut_; }            // truncated questions
  int64_t left_out() const { return left_out_; }  // questions without rows

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
  std::vector<int64_t> first_row_;  // first row of each question, and the number of rows
  int64_t cut_ = 0, left_out_ = 0;
};

}  // namespace mh::text
