// The blocks of a text in the order in which training with train.batch.order = blocks reads them: all blocks in each
// epoch, shuffled by (seed, epoch).
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.h"

namespace mh::data {

class BlockOrder {
 public:
  // The text has `num_tokens` tokens; a block has `block_length` tokens, and the last block may have fewer.
  BlockOrder(int64_t num_tokens, int64_t block_length, int64_t seed);
  int64_t num_blocks() const { return static_cast<int64_t>(order_.size()); }
  // Returns block `index`, counted from 0, of the shuffled order of an epoch.
  Row row(int64_t epoch, int64_t index);

 private:
  int64_t num_tokens_, block_length_, seed_;
  int64_t epoch_ = -1;          // epoch of order_; -1: none
  std::vector<int64_t> order_;  // indices of the blocks in the shuffled order of epoch_
};

}  // namespace mh::data
