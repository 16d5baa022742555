// Examples of a shard as rows that BERT reads, for a model that says classes or a number; and its predictions as GLUE's
// server takes them.
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

// How many tokens are kept of two sentences that have `room` together: the end of the longer one goes, and where that
// is not enough they get half each, an odd one going to the longer, of equal ones to the second. As the package
// tokenizers truncates by longest_first; BERT's own program gives the odd one to the first.
std::pair<int64_t, int64_t> kept_of(int64_t first, int64_t second, int64_t room);

// What the runs were made of must outlive it. Safe to use from several threads.
class Classification {
 public:
  // The runs of a shard of examples of this task; rows have `length` tokens at most. Error(usage) where nothing fits
  // in.
  Classification(Sequences runs, ExampleTask task, const WordPieceTokenizer& tokenizer, int64_t length);
  int64_t size() const { return static_cast<int64_t>(runs_.ends.size() / 3); }
  int64_t length(int64_t i) const;  // tokens of the row
  // Of a task of two sentences two segments, also where the second is empty.
  Example make(int64_t i) const;
  int64_t truncated() const { return truncated_; }  // rows that lack tokens of their example
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

// A line of `index` and `prediction`, then a line for each example: the word of the class, or the number with three
// decimals. Predictions are numbers of classes, or numbers as they are (not thousandths).
void write_predictions(ByteSink& sink, const ExampleTask& task, std::span<const double> predictions);

}  // namespace mh::text
