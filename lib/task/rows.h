// How a text becomes rows of tokens to predict, in training and in evaluation.
//
// Token i is predicted from the tokens before it in its row (and in the memory behind it) and token i - 1; the text's
// first, and the first of each target of a pair, from an end-of-line symbol.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "model/language_model.h"
#include "task/corpus.h"
#include "task/examples.h"

namespace mh::task {

// Tokens [first, first + length) of a text as the targets of a row, of which those from `scored` on count. Or the whole
// target of a pair, which begins at `first` among all targets. Or the targets of an example, `first` 0.
struct Row {
  int64_t first = 0, length = 0, scored = 0;
  int64_t pair = -1;  // or example; -1: of a text
};

// On the CPU.
struct Batch {
  model::Input input;  // with its lengths
  at::Tensor targets;  // (B, n) int64, -1 where a row is short and where it does not count
  double next_weight = 1;
  model::Targets wanted() const { return {targets, next_weight}; }
};

// Rows of at most `width` tokens, filled up behind their end, where a causal model does not look.
Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width);
// Rows of pairs, either side as wide as its longest.
Row row_of(const Pairs& pairs, int64_t pair);
Batch load_pairs(const Pairs& pairs, const std::vector<Row>& rows);
// Rows as wide as the longest; next_weight is the caller's to set.
Batch load_examples(const Examples& corpus, std::span<const text::Example> examples);

// a / b, rounded up.
inline int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// A text cut into contiguous streams in its own order, of lengths that differ by at most one (the longer ones first),
// and each stream into segments of `block` tokens. Every token is in exactly one segment.
class Streams {
 public:
  Streams(int64_t tokens, int64_t count, int64_t block) : tokens_(tokens), count_(count), block_(block) {}
  int64_t count() const { return count_; }
  int64_t segments() const { return divided_up(divided_up(tokens_, count_), block_); }
  // Tokens in the longest row of a segment: `block`, but for the last.
  int64_t width(int64_t segment) const { return row(0, segment).length; }
  // Of length 0 where the stream has ended, one token before the others.
  Row row(int64_t stream, int64_t segment) const;

 private:
  int64_t tokens_, count_, block_;
};

}  // namespace mh::task
