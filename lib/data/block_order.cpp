#include "data/block_order.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "ceil_div.h"

namespace mh::data {

BlockOrder::BlockOrder(int64_t num_tokens, int64_t block_length, int64_t seed)
    : num_tokens_(num_tokens),
      block_length_(block_length),
      seed_(seed),
      order_(static_cast<size_t>(ceil_div(num_tokens, block_length))) {}

Row BlockOrder::row(int64_t epoch, int64_t index) {
  if (epoch != epoch_) {
    std::iota(order_.begin(), order_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "batches"), static_cast<uint32_t>(epoch));
    random.shuffle(order_);
    epoch_ = epoch;
  }
  const int64_t offset = order_[static_cast<size_t>(index)] * block_length_;
  return {offset, std::min(block_length_, num_tokens_ - offset), 0};
}

}  // namespace mh::data
