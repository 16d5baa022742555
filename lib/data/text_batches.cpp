#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ceil_div.h"
#include "data/batches.h"
#include "data/block_order.h"

namespace mh::data {

namespace {

int64_t rows_per_update(const BatchOptions& o) { return o.tokens / o.sequence_length; }

int64_t updates_in_epoch(const BatchOptions& o, int64_t num_tokens) {
  const int64_t num_rows = rows_per_update(o);
  if (o.order == BatchOrder::sentence_streams)
    return num_tokens > 0 ? std::max<int64_t>(1, num_tokens / (num_rows * o.sequence_length)) : 0;
  return o.order == BatchOrder::streams ? Streams(num_tokens, num_rows, o.sequence_length).num_segments()
                                        : ceil_div(ceil_div(num_tokens, o.sequence_length), num_rows);
}

class ShuffledBlocks : public TextBatches {
 public:
  ShuffledBlocks(Text text, const BatchOptions& o, int64_t seed)
      : TextBatches(std::move(text), o), order_(text_.num_tokens, o.sequence_length, seed) {}

  UpdateRows rows_of(int64_t update) override {
    const int64_t epoch = update / updates_per_epoch_, first = update % updates_per_epoch_ * rows_per_update_,
                  end = std::min(order_.num_blocks(), first + rows_per_update_);
    UpdateRows update_rows{{}, options_.sequence_length};
    for (int64_t i = first; i < end; ++i) update_rows.rows.push_back(order_.row(epoch, i));
    return update_rows;
  }

 private:
  BlockOrder order_;
};

class OrderedStreams : public TextBatches {
 public:
  OrderedStreams(Text text, const BatchOptions& o)
      : TextBatches(std::move(text), o), streams_(text_.num_tokens, rows_per_update_, o.sequence_length) {
    if (text_.num_tokens < rows_per_update_)
      refuse_usage("train.batch.tokens",
                   str("at most ", count_of(text_.num_tokens, "stream"), ", the number of tokens in the text"),
                   str(count_of(rows_per_update_, "stream"), " (train.batch.tokens / train.batch.sequence_length)"),
                   "lower train.batch.tokens");
  }

  UpdateRows rows_of(int64_t update) override {
    const int64_t segment = update % updates_per_epoch_;
    UpdateRows update_rows{{}, streams_.width(segment)};
    for (int64_t s = 0; s < rows_per_update_; ++s) update_rows.rows.push_back(streams_.row(s, segment));
    return update_rows;
  }
  bool continues_streams(int64_t update) const override { return update % updates_per_epoch_ != 0; }

 private:
  Streams streams_;
};

}  // namespace

int64_t epochs_to_updates(int64_t epochs, int64_t updates_per_epoch, const Length& length) {
  int64_t updates;
  if (__builtin_mul_overflow(epochs, updates_per_epoch, &updates))
    refuse_usage(length.origin, "a length of fewer than 2^63 updates",
                 str(to_string(length), ", with ", count_of(updates_per_epoch, "update"), " per epoch"),
                 "lower the length");
  return updates;
}

int64_t count_updates(const Length& length, int64_t updates_per_epoch,
                      const std::function<int64_t(int64_t num_tokens)>& tokens_to_updates) {
  switch (length.unit) {
    case Length::Unit::updates:
      return length.count;
    case Length::Unit::epochs:
      return epochs_to_updates(length.count, updates_per_epoch, length);
    case Length::Unit::tokens:
      return tokens_to_updates(length.count);
  }
  return 0;
}

int64_t mean_length_to_updates(const Length& length, int64_t updates_per_epoch, int64_t num_targets) {
  return count_updates(length, updates_per_epoch, [&](int64_t count) {
    return epochs_to_updates(count / num_targets, updates_per_epoch, length) +
           ceil_div(count % num_targets * updates_per_epoch, num_targets);
  });
}

int64_t length_to_updates(const Length& length, const BatchOptions& o, int64_t num_tokens) {
  const int64_t updates_per_epoch = updates_in_epoch(o, num_tokens),
                tokens_per_update = rows_per_update(o) * o.sequence_length;
  return count_updates(length, updates_per_epoch, [&](int64_t count) {
    // The last update of an epoch may have fewer tokens, so whole epochs are converted to updates first, then the
    // remainder.
    if (num_tokens == 0) return ceil_div(count, tokens_per_update);
    return epochs_to_updates(count / num_tokens, updates_per_epoch, length) +
           std::min(updates_per_epoch, ceil_div(count % num_tokens, tokens_per_update));
  });
}

TextBatches::TextBatches(Text text, const BatchOptions& o) : text_(std::move(text)), options_(o) {
  set_row_counts(o);
  updates_per_epoch_ = updates_in_epoch(o, text_.num_tokens);
}

std::vector<int64_t> TextBatches::row_costs(int64_t update) { return rows_of(update).costs(); }

void Batches::set_row_counts(const BatchOptions& o) {
  rows_per_update_ = data::rows_per_update(o);
  rows_per_micro_batch_ =
      o.micro_tokens > 0 ? std::min(rows_per_update_, o.micro_tokens / o.sequence_length) : rows_per_update_;
  tokens_per_update_ = rows_per_update_ * o.sequence_length;
}

void Batches::copy_base_members(const Batches& other) {
  rows_per_update_ = other.rows_per_update_;
  rows_per_micro_batch_ = other.rows_per_micro_batch_;
  updates_per_epoch_ = other.updates_per_epoch_;
  tokens_per_update_ = other.tokens_per_update_;
  shard_shares_ = other.shard_shares_;
}

std::vector<Batches::MicroBatch> Batches::split_rows(const BatchRowRange& rows) const {
  std::vector<MicroBatch> micro_batches;
  for (int64_t first = 0; first < rows.num_rows; first += rows_per_micro_batch_)
    micro_batches.push_back({rows.first_row + first, std::min(rows_per_micro_batch_, rows.num_rows - first)});
  return micro_batches;
}

std::vector<Batches::MicroBatch> TextBatches::micro_batches_of(int64_t /*update*/, const BatchRowRange& rows) {
  return split_rows(rows);
}

Batch TextBatches::load(int64_t update, const MicroBatch& micro_batch) {
  const UpdateRows update_rows = rows_of(update);
  const auto begin = update_rows.rows.begin() + micro_batch.first_row;
  return load_rows(text_, {begin, begin + micro_batch.num_rows}, update_rows.width);
}

std::string TextBatches::describe_rows(int64_t update) {
  const auto rows = rows_of(update).rows;
  return str(count_of(rows.size(), "row"), ", of which the first starts at token ", rows[0].offset);
}

std::unique_ptr<TextBatches> make_batches(Text text, const BatchOptions& options, int64_t seed) {
  if (options.order == BatchOrder::streams) return std::make_unique<OrderedStreams>(std::move(text), options);
  return std::make_unique<ShuffledBlocks>(std::move(text), options, seed);
}

}  // namespace mh::data
