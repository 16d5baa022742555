// Rows (the sequences of a batch) and batches, for training and evaluation.
//
// A decoder predicts each token of a row from all earlier tokens of the row, from the token before the row, and from
// the Transformer-XL memory, if the model has one. The first token of a text and the first target token of each
// sentence pair have no earlier token; their input is the end-of-line token, or the begin token
// (Row::starts_with_begin).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/language_model.h"

namespace mh::data {

// The targets of one row, in tokens. The corpus determines the meaning of the members:
//   text      tokens [offset, offset + length) of the text; the first `num_context` of them are context and not scored
//   pairs     the target sentence of pair `record_index`; `offset`: number of target tokens in all earlier pairs
//   examples  the `length` targets of example `record_index`; offset = num_context = 0
struct Row {
  int64_t offset = 0, length = 0, num_context = 0;
  // Index of the pair or example in the corpus, or of the row among the rows of all documents of a text; -1 for a row
  // of a text that is not split at documents.
  int64_t record_index = -1;
  bool starts_with_begin = false;  // text: whether the begin token replaces the token before the row
};

// The input and the targets of B rows, in CPU memory.
struct Batch {
  model::Input input;  // input.lengths is always set
  at::Tensor targets;  // (B, n) int64, model::Targets; negative for padding and for targets that are not scored
  double next_sentence_weight = 1;  // weight of a next-sentence target in the loss, relative to a masked word
  model::Targets model_targets() const { return {targets, next_sentence_weight}; }
};

}  // namespace mh::data
