// Which rows of the text an update takes. Where a batch stands follows from its number alone, and every token is a
// target exactly once an epoch.
//
//   blocks   fairseq's `none`: the text in one row, cut into blocks of n tokens, blocks shuffled anew each epoch by
//            (seed, epoch), no state across blocks
//   streams  Transformer-XL: the text cut into B contiguous streams in its own order (task::Streams), of which each
//            update takes the next n tokens, so that a memory of the earlier ones is true. The last update of an epoch
//            takes what is left. Each epoch begins at the start of every stream, with an empty memory, as the published
//            code does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "task/rows.h"
#include "train/options.h"

namespace mh::train {

// Number of updates in a length; epochs and tokens are rounded up. Epochs of an unknown text (tokens 0) are 0.
int64_t updates_in(const Length& length, const TrainOptions& options, int64_t tokens);

class Batches {
 public:
  struct Rows {
    std::vector<task::Row> rows;  // in order
    int64_t width = 0;            // tokens in a row; the same for every micro-batch of an update
  };
  virtual ~Batches() = default;
  // Those of update `update` (from 0).
  virtual Rows rows_of(int64_t update) = 0;
  // Whether each row of the update goes on where it ended in the update before, and takes its memory over.
  virtual bool goes_on(int64_t update) const = 0;

  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  int64_t rows_per_update() const { return rows_; }
  int64_t rows_per_micro() const { return micro_rows_; }
  int64_t updates(const Length& length) const { return updates_in(length, options_, text_.tokens); }
  // Rows [first, first + count) of an update, as many as there are.
  task::Batch load(const Rows& update, size_t first, size_t count) const;

 protected:
  Batches(task::Text text, const TrainOptions& options);
  const task::Text text_;
  const TrainOptions options_;
  int64_t rows_, micro_rows_, updates_per_epoch_;
};

// As options.batching says. Error(usage) where batch_tokens hold no block, or more streams than the text has tokens.
std::unique_ptr<Batches> make_batches(task::Text text, const TrainOptions& options);

}  // namespace mh::train
