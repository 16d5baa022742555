// Questions on paragraphs, and the rows in which a model reads them: windows, as BERT has them for SQuAD (Devlin et al.
// 2019; run_squad.py beside it).
//
//   [CLS] question [SEP] tokens of the paragraph [SEP]
//
// A paragraph that is too long for a row comes in several, each `stride` tokens further than the one before; the last
// one ends with the paragraph. A token that is in several windows counts in the one that shows most around it: where
// the smaller of its distances to the window's first and last token, and a hundredth of the window's size, is largest,
// the first of equal ones.
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
  int64_t length = 384;  // tokens of a row at most; the key train.batch.block says it
  int64_t stride = 128;
  int64_t question = 64;
  void describe(Fields& f) {
    f.field("stride", stride, "tokens from where a window of a paragraph begins to where the next one does",
            at_least(1));
    f.field("question", question, "tokens of a question at most; longer ones are cut", at_least(1));
  }
  // Refuses rows that have no room for a paragraph behind a question. Error(usage).
  void check() const;
};

// Tokens [first, last], both included; of no answer none.
struct Span {
  int32_t first = -1, last = -1;
  bool none() const { return first < 0; }
  bool operator==(const Span&) const = default;
};

struct Paragraph {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TextRange> places;  // of the tokens, bytes of the text
  // The text that these tokens are, as it stands there.
  std::string text_of(Span tokens) const;
};

struct Question {
  std::string id;
  std::vector<int32_t> tokens;  // WindowOptions::question at most
  std::vector<TrueAnswer> answers;
  bool impossible = false;
  size_t paragraph = 0;
  // Of the paragraph: those of the first answer that stands in it. A token belongs to an answer where one of its
  // characters does: an answer may begin or end within a token.
  Span answer;
};

struct Window {
  int64_t question = 0;
  int32_t first = 0, count = 0;  // tokens of the paragraph
};

// Which questions have rows.
enum class QuestionUse {
  learn,   // those whose answer stands in the paragraph, or that have none
  answer,  // all
};

// Held in memory, each paragraph once: of the 130,319 questions of SQuAD 2.0 about 100 MB.
class Questions {
 public:
  // Of a shard of the kind questions, whose runs were checked (ShardFile::verify, read_whole_shard), and its tokenizer;
  // `name` stands in messages. Nothing of it is needed afterwards. Error(input) for records that are damaged.
  Questions(const Sequences& runs, const io::ShardHeader& header, const WordPieceTokenizer& tokenizer,
            const WindowOptions& options, QuestionUse use, const std::string& name);

  int64_t size() const { return static_cast<int64_t>(windows_.size()); }  // rows
  // Tokens of the row, how many of them are the question's with both marks, and as targets where in the row the answer
  // begins and ends: 0 and 0, the mark [CLS], where the window does not hold all of it.
  Example make(int64_t row) const;
  int64_t length(int64_t row) const { return paragraph_begins(row) + window(row).count + 1; }
  const Window& window(int64_t row) const { return windows_[static_cast<size_t>(row)]; }
  // Where in the row the paragraph's part begins.
  int64_t paragraph_begins(int64_t row) const;
  // Of each token of the paragraph in the row, whether no other row shows more around it.
  std::vector<bool> counts_here(int64_t row) const;

  const std::vector<Question>& questions() const { return questions_; }
  const Paragraph& paragraph_of(int64_t question) const;
  // Rows [first, second) of a question; none where it is not used.
  std::pair<int64_t, int64_t> rows_of(int64_t question) const;

  bool unanswerable() const { return unanswerable_; }  // some may be impossible: scored as SQuAD 2.0 does
  int64_t cut() const { return cut_; }                 // questions that were longer than they may be
  int64_t left_out() const { return left_out_; }       // questions without rows

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
  std::vector<int64_t> first_row_;  // of each question, and the number of rows
  int64_t cut_ = 0, left_out_ = 0;
};

}  // namespace mh::text
