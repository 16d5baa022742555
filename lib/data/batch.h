// Rows of tokens to predict, in training and in evaluation, and batches of them.
//
// Token i is predicted from the tokens before it in its row (and in the memory before that) and token i - 1; the text's
// first, and the first of each target of a pair, from an end-of-line symbol.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/language_model.h"

namespace mh::data {

// Tokens [first, first + length) of a text as the targets of a row, of which those from `scored` on count. Or the whole
// target of a pair, which begins at `first` among all targets. Or the targets of an example, `first` 0.
struct Row {
  int64_t first = 0, length = 0, scored = 0;
  int64_t pair = -1;  // number of the pair or example; -1: a row of a text
};

// On the CPU.
struct Batch {
  model::Input input;  // with its lengths
  at::Tensor targets;  // (B, n) int64, -1 where a row is short and where it does not count
  double next_weight = 1;
  model::Targets wanted() const { return {targets, next_weight}; }
};

// a / b, rounded up.
inline int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace mh::data
