// Language-model batches as fairseq's `none` mode: the whole text in one row, cut into blocks of n tokens, blocks
// shuffled anew each epoch by (seed, epoch), no state across blocks.
//
// Token i is predicted from the tokens before it in its block and token i-1; the very first from an end-of-line symbol.
// So every token is a target exactly once an epoch. Where a batch stands follows from its number alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "io/shard.h"
#include "train/options.h"

namespace mh::train {

struct Batch {
  at::Tensor inputs;   // (B, n) int64
  at::Tensor targets;  // (B, n) int64, -1 where the last block of the text is short
};

// Number of updates in a length; epochs and tokens are rounded up. Epochs of an unknown text (tokens 0) are 0.
int64_t updates_in(const Length& length, const TrainOptions& options, int64_t tokens);

class Batches {
 public:
  // The shard must outlive this. Error(usage) where batch_tokens hold no block.
  Batches(const io::ShardFile& shard, int32_t end_of_line, const TrainOptions& options);

  int64_t blocks() const { return blocks_; }
  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  int64_t rows_per_update() const { return rows_; }
  int64_t rows_per_micro() const { return micro_rows_; }
  int64_t updates(const Length& length) const { return updates_in(length, options_, tokens_); }

  // Block numbers of update `update` (from 0), in order.
  std::vector<int64_t> rows_of(int64_t update);
  Batch load(const std::vector<int64_t>& rows) const;

 private:
  const io::ShardFile& shard_;
  int32_t end_of_line_;
  TrainOptions options_;
  int64_t tokens_, blocks_, rows_, micro_rows_, updates_per_epoch_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // of the epoch
};

// Blocks of a text in order, without a shuffle: for validation.
Batch load_blocks(const io::ShardFile& shard, int32_t end_of_line, int64_t block, const std::vector<int64_t>& rows);

}  // namespace mh::train
