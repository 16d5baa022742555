#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace mh::train {

Batches::Batches(const io::ShardFile& shard, int32_t end_of_line, const TrainOptions& o)
    : shard_(shard),
      end_of_line_(end_of_line),
      seed_(static_cast<uint64_t>(o.seed)),
      block_(o.block),
      batch_tokens_(o.batch_tokens) {
  const auto tokens = static_cast<int64_t>(shard.counts().tokens);
  if (tokens == 0) throw Error(Exit::input, Problem{shard.name(), "tokens to train on", "none", ""});
  if (o.batch_tokens < o.block)
    throw Error(Exit::usage, Problem{"train.batch_tokens", str("at least a block of ", o.block, " tokens"),
                                     std::to_string(o.batch_tokens), "raise it, or lower train.block"});
  if (o.micro_tokens > 0 && o.micro_tokens < o.block)
    throw Error(Exit::usage, Problem{"train.micro_tokens", str("0, or at least a block of ", o.block, " tokens"),
                                     std::to_string(o.micro_tokens), ""});
  blocks_ = (tokens + block_ - 1) / block_;
  rows_ = o.batch_tokens / block_;
  micro_rows_ = o.micro_tokens > 0 ? std::min(rows_, o.micro_tokens / block_) : rows_;
  updates_per_epoch_ = (blocks_ + rows_ - 1) / rows_;
}

int64_t Batches::updates(const Length& length) const {
  switch (length.unit) {
    case Length::Unit::updates:
      return length.count;
    case Length::Unit::epochs:
      return length.count * updates_per_epoch_;
    case Length::Unit::tokens:
      return (length.count + rows_ * block_ - 1) / (rows_ * block_);
  }
  return 0;
}

std::vector<int64_t> Batches::rows_of(int64_t update) {
  int64_t epoch = update / updates_per_epoch_, index = update % updates_per_epoch_;
  if (epoch != epoch_) {
    order_.resize(static_cast<size_t>(blocks_));
    std::iota(order_.begin(), order_.end(), 0);
    RandomSequence random(RandomStream(seed_, "batches"), static_cast<uint32_t>(epoch));
    random.shuffle(order_);
    epoch_ = epoch;
  }
  int64_t first = index * rows_, last = std::min(blocks_, first + rows_);
  return {order_.begin() + first, order_.begin() + last};
}

Batch Batches::load(const std::vector<int64_t>& rows) const { return load_blocks(shard_, end_of_line_, block_, rows); }

Batch load_blocks(const io::ShardFile& shard, int32_t end_of_line, int64_t block, const std::vector<int64_t>& rows) {
  const auto count = static_cast<int64_t>(rows.size()), total = static_cast<int64_t>(shard.counts().tokens);
  Batch batch{at::full({count, block}, static_cast<int64_t>(end_of_line), at::kLong),
              at::full({count, block}, -1, at::kLong)};
  auto* in = batch.inputs.mutable_data_ptr<int64_t>();
  auto* out = batch.targets.mutable_data_ptr<int64_t>();
  std::vector<int32_t> tokens(static_cast<size_t>(block) + 1);
  for (int64_t r = 0; r < count; ++r, in += block, out += block) {
    const int64_t first = rows[static_cast<size_t>(r)] * block, length = std::min(block, total - first);
    // The token before the block comes along: the block's first input.
    const int64_t before = first > 0 ? 1 : 0;
    tokens[0] = end_of_line;
    shard.read(static_cast<uint64_t>(first - before),
               std::span(tokens).subspan(static_cast<size_t>(1 - before), static_cast<size_t>(length + before)));
    std::copy_n(tokens.begin(), length, in);
    std::copy_n(tokens.begin() + 1, length, out);
  }
  return batch;
}

}  // namespace mh::train
