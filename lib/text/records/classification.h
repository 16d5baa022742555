// Examples of a shard as rows for BERT with a head that predicts classes or a number; and predictions in the format of
// GLUE's server.
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

// Returns how many tokens are kept of two sentences that share `room` tokens: the longer one is truncated, and if that
// is not enough both get half, the odd token going to the longer one, or the second of equal ones. This is
// longest_first of the package tokenizers; BERT's own program gives the odd token to the first.
std::pair<int64_t, int64_t> kept_of(int64_t first, int64_t second, int64_t room);

// The source of the sequences must outlive this. Thread-safe.
class Classification {
 public:
  // `runs`: those of a shard of examples of this task; rows have at most `length` tokens. Throws Error(usage) if no
  // text fits in.
  Classification(Sequences runs, ExampleTask task, const WordPieceTokenizer& tokenizer, int64_t length);
  int64_t size() const { return static_cast<int64_t>(runs_.ends.size() / 3); }
  int64_t length(int64_t i) const;  // tokens of a row
  // Returns a row; two sentences make two segments, even if the second is empty.
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

// Writes a line "index prediction", then a line for each example: the name of the class, or the number with three
// decimals. Predictions are class indices, or numbers (not thousandths).
void write_predictions(ByteSink& sink, const ExampleTask& task, std::span<const double> predictions);

}  // namespace mh::text
