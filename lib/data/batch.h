// Rows of tokens to predict, in training and in evaluation, and batches of them.
//
// Token i is predicted from token i - 1 and the tokens before it in its row, and in the memory before that; the first
// token of a text, and of each target of a pair, is predicted from an end-of-line symbol.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/language_model.h"

namespace mh::data {

// The targets of a row: tokens [first, first + length) of a text, scored from `scored` on; or the whole target of a
// pair, which begins at `first` among all targets; or the targets of an example, with `first` 0.
struct Row {
  int64_t first = 0, length = 0, scored = 0;
  int64_t pair = -1;  // number of the pair or example; -1: a row of a text
};

// A batch in main memory.
struct Batch {
  model::Input input;  // with lengths
  at::Tensor targets;  // (B, n) int64; -1 for padding and for targets that are not scored
  double next_weight = 1;
  model::Targets model_targets() const { return {targets, next_weight}; }
};

// Returns a / b, rounded up.
inline int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace mh::data
