#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace mh::train {

namespace {

int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

int64_t updates_in(const Length& length, const TrainOptions& o, int64_t tokens) {
  const int64_t rows = o.batch_tokens / o.block;
  const int64_t in_epoch = divided_up(divided_up(tokens, o.block), rows);
  auto epochs = [&](int64_t count) {
    int64_t updates;
    if (__builtin_mul_overflow(count, in_epoch, &updates))
      throw Error(Exit::usage, Problem{"a length in [train]", "updates that 63 bits can count", to_string(length), ""});
    return updates;
  };
  switch (length.unit) {
    case Length::Unit::updates:
      return length.count;
    case Length::Unit::epochs:
      return epochs(length.count);
    case Length::Unit::tokens:
      // The last row and the last batch of an epoch are short, so whole epochs are counted by what they hold.
      if (tokens == 0) return divided_up(length.count, rows * o.block);
      return epochs(length.count / tokens) + std::min(in_epoch, divided_up(length.count % tokens, rows * o.block));
  }
  return 0;
}

Batches::Batches(const io::ShardFile& shard, int32_t end_of_line, const TrainOptions& o)
    : shard_(shard), end_of_line_(end_of_line), options_(o), tokens_(static_cast<int64_t>(shard.counts().tokens)) {
  o.check();
  if (tokens_ == 0) throw Error(Exit::input, Problem{shard.name(), "tokens to train on", "none", ""});
  blocks_ = divided_up(tokens_, o.block);
  rows_ = o.batch_tokens / o.block;
  micro_rows_ = o.micro_tokens > 0 ? std::min(rows_, o.micro_tokens / o.block) : rows_;
  updates_per_epoch_ = divided_up(blocks_, rows_);
}

std::vector<int64_t> Batches::rows_of(int64_t update) {
  int64_t epoch = update / updates_per_epoch_, index = update % updates_per_epoch_;
  if (epoch != epoch_) {
    order_.resize(static_cast<size_t>(blocks_));
    std::iota(order_.begin(), order_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(options_.seed), "batches"), static_cast<uint32_t>(epoch));
    random.shuffle(order_);
    epoch_ = epoch;
  }
  int64_t first = index * rows_, last = std::min(blocks_, first + rows_);
  return {order_.begin() + first, order_.begin() + last};
}

Batch Batches::load(const std::vector<int64_t>& rows) const {
  return load_blocks(shard_, end_of_line_, options_.block, rows);
}

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
