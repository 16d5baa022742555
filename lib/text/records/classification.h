// Turns the examples of a shard into rows for BERT with a classification or regression head, and writes predictions in
// the format of GLUE's server.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/file.h"
#include "text/records/classification/examples.h"
#include "text/records/example.h"
#include "text/records/sequences.h"
#include "text/wordpiece.h"

namespace mh::text {

// Returns the numbers of tokens kept of two sentences that share `room` tokens: the longer one is truncated, and if
// that is not enough each gets half, where the odd token goes to the longer one, or to the second of equal ones. This
// is longest_first of Hugging Face tokenizers; BERT's own code gives the odd token to the first.
std::pair<int64_t, int64_t> kept_lengths(int64_t first, int64_t second, int64_t room);

// Thread-safe. The source of `runs` must outlive this object.
class Classification {
 public:
  // `runs` are the sequences of a shard of examples of this task: first text, second text and label of each example.
  // Rows have at most `length` tokens. Throws Error(usage) if that leaves no room for text.
  Classification(Sequences runs, ExampleTask task, const WordPieceTokenizer& tokenizer, int64_t length);
  int64_t size() const { return static_cast<int64_t>(runs_.ends.size() / 3); }
  int64_t length(int64_t i) const;  // tokens of a row
  // Returns a row; a task of two sentences has two segments, even if the second is empty.
  Example make(int64_t i) const;
  int64_t truncated() const { return truncated_; }  // truncated rows
  int64_t unlabelled() const { return unlabelled_; }
  const ExampleTask& task() const { return task_; }

 private:
  std::pair<int64_t, int64_t> kept(int64_t i) const;
  int64_t special() const { return task_.sentences + 1; }

  Sequences runs_;
  ExampleTask task_;
  WordPieceTokenizer::Special entries_;
  int64_t length_;
  int64_t truncated_ = 0, unlabelled_ = 0;
};

// Writes the header line "index prediction", then one line per example: the name of the class, or the number with three
// decimals. `predictions` are class indices, or numbers (not thousandths).
void write_predictions(ByteSink& sink, const ExampleTask& task, std::span<const double> predictions);

}  // namespace mh::text
