// Mixtures of texts: shuffled blocks and streams.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "ceil_div.h"
#include "data/mixed_batches.h"

namespace mh::data {

namespace {

class MixedBlocks : public MixedTextBatches {
 public:
  MixedBlocks(std::vector<Text> texts, const std::vector<double>& weights, const BatchOptions& o, int64_t seed)
      : MixedTextBatches(std::move(texts), weights, o), order_(Shares(weights)), log_order_(Shares(weights)) {
    int64_t num_blocks = 0;
    for (size_t i = 0; i < texts_.size(); ++i) {
      blocks_.emplace_back(texts_[i].num_tokens, o.sequence_length, seed_of_shard(seed, static_cast<int64_t>(i)));
      num_blocks += blocks_.back().num_blocks();
    }
    set_epoch(num_blocks);
  }

  UpdateRows rows_of(int64_t update) override {
    UpdateRows update_rows{{}, options_.sequence_length};
    for (int64_t r = 0; r < rows_per_update_; ++r) {
      const auto [shard, index] = order_.at(update * rows_per_update_ + r);
      BlockOrder& blocks = blocks_[shard];
      update_rows.rows.push_back({shard, blocks.row(index / blocks.num_blocks(), index % blocks.num_blocks())});
    }
    return update_rows;
  }

  std::vector<double> shard_epochs(int64_t num_updates) override {
    const std::vector<int64_t>& counts = log_order_.counts_before(num_updates * rows_per_update_);
    std::vector<double> epochs;
    for (size_t i = 0; i < counts.size(); ++i)
      epochs.push_back(static_cast<double>(counts[i]) / static_cast<double>(blocks_[i].num_blocks()));
    return epochs;
  }

 private:
  BlendedOrder order_;
  BlendedOrder log_order_;  // the same order, read by shard_epochs(), which may run in another thread than rows_of()
  std::vector<BlockOrder> blocks_;
};

class MixedStreams : public MixedTextBatches {
 public:
  MixedStreams(std::vector<Text> texts, const std::vector<std::string>& names, const std::vector<double>& weights,
               const BatchOptions& o)
      : MixedTextBatches(std::move(texts), weights, o), num_streams_(Shares(weights).divide(rows_per_update_)) {
    int64_t num_tokens = 0;
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (num_streams_[i] == 0)
        refuse_usage("data.weights", "a weight of at least one stream for each training shard",
                     str("a weight of ", fixed_decimal(shard_shares_[i], 4), " for ", names[i], " in ",
                         count_of(rows_per_update_, "stream"), " (train.batch.tokens / train.batch.sequence_length)"),
                     "raise train.batch.tokens, or raise this weight");
      if (texts_[i].num_tokens / num_streams_[i] < o.sequence_length)
        refuse_usage("train.batch.sequence_length",
                     str("streams of at least ", count_of(o.sequence_length, "token"), " in each training shard"),
                     str(count_of(num_streams_[i], "stream"), " of ",
                         count_of(texts_[i].num_tokens / num_streams_[i], "token"), " in ", names[i]),
                     "lower train.batch.tokens, train.batch.sequence_length or the weight of this shard");
      for (int64_t s = 0; s < num_streams_[i]; ++s) {
        const int64_t begin = split_begin(texts_[i].num_tokens, num_streams_[i], s);
        streams_.push_back({i, begin, split_begin(texts_[i].num_tokens, num_streams_[i], s + 1) - begin});
      }
      num_tokens += texts_[i].num_tokens;
    }
    set_epoch(ceil_div(num_tokens, o.sequence_length));
  }

  bool continues_streams(int64_t update) const override { return update > 0; }

  UpdateRows rows_of(int64_t update) override {
    UpdateRows update_rows{{}, options_.sequence_length};
    for (const Stream& stream : streams_) {
      const int64_t position = update * options_.sequence_length % stream.length,
                    length = std::min(options_.sequence_length, stream.length - position);
      update_rows.rows.push_back(
          {stream.shard, {stream.begin + position, length, 0}, {stream.begin, options_.sequence_length - length, 0}});
    }
    return update_rows;
  }

  std::vector<double> shard_epochs(int64_t num_updates) override {
    std::vector<double> epochs;
    for (size_t i = 0; i < texts_.size(); ++i)
      epochs.push_back(static_cast<double>(num_updates * options_.sequence_length * num_streams_[i]) /
                       static_cast<double>(texts_[i].num_tokens));
    return epochs;
  }

 private:
  struct Stream {
    size_t shard = 0;
    int64_t begin = 0, length = 0;  // tokens [begin, begin + length) of the text
  };
  // Returns the first token of part `part` of a text that is split into `num_parts` parts, whose lengths differ by at
  // most one token, the longer parts first.
  static int64_t split_begin(int64_t num_tokens, int64_t num_parts, int64_t part) {
    return part * (num_tokens / num_parts) + std::min(part, num_tokens % num_parts);
  }

  const std::vector<int64_t> num_streams_;  // of each text
  std::vector<Stream> streams_;
};

}  // namespace

MixedTextBatches::MixedTextBatches(std::vector<Text> texts, const std::vector<double>& weights, const BatchOptions& o)
    : texts_(std::move(texts)), options_(o) {
  shard_shares_ = normalise_weights(weights);
  set_row_counts(o);
}

void MixedTextBatches::set_epoch(int64_t rows_in_epoch) {
  updates_per_epoch_ = ceil_div(rows_in_epoch, rows_per_update_);
}

const MixedTextBatches::UpdateRows& MixedTextBatches::cached_rows(int64_t update) {
  if (update != cached_update_) {
    cached_rows_ = rows_of(update);
    cached_update_ = update;
  }
  return cached_rows_;
}

std::vector<int64_t> MixedTextBatches::row_costs(int64_t update) { return cached_rows(update).costs(); }

std::vector<Batches::MicroBatch> MixedTextBatches::micro_batches_of(int64_t /*update*/, const BatchRowRange& rows) {
  return split_rows(rows);
}

Batch MixedTextBatches::load(int64_t update, const MicroBatch& micro_batch) {
  const UpdateRows& update_rows = cached_rows(update);
  const auto begin = update_rows.rows.begin() + micro_batch.first_row, end = begin + micro_batch.num_rows;
  std::vector<at::Tensor> tokens, lengths, targets;
  for (auto first = begin; first != end;) {
    // Loads consecutive rows with one call if they belong to one text and have equal lengths without their
    // continuations.
    const auto next = std::find_if(first, end, [&](const ShardRow& row) {
      return row.shard != first->shard || row.row.length != first->row.length;
    });
    const Text& text = texts_[first->shard];
    std::vector<Row> rows, continuations;
    for (const ShardRow& row : std::span(first, next)) {
      rows.push_back(row.row);
      if (row.continuation.length > 0) continuations.push_back(row.continuation);
    }
    if (continuations.empty()) {
      const Batch batch = load_rows(text, rows, update_rows.width);
      tokens.push_back(batch.input.tokens);
      lengths.push_back(batch.input.lengths.decoder);
      targets.push_back(batch.targets);
    } else {
      const Batch head = load_rows(text, rows, rows[0].length),
                  tail = load_rows(text, continuations, continuations[0].length);
      tokens.push_back(nn::cat({head.input.tokens, tail.input.tokens}, 1));
      lengths.push_back(head.input.lengths.decoder + tail.input.lengths.decoder);
      targets.push_back(nn::cat({head.targets, tail.targets}, 1));
    }
    first = next;
  }
  return {{nn::cat(tokens), {}, attention::Lengths(nn::cat(lengths))}, nn::cat(targets)};
}

std::string MixedTextBatches::describe_rows(int64_t update) {
  const auto& rows = cached_rows(update).rows;
  return str(rows.size(), " rows, of which the first starts at token ", rows[0].row.offset, " of training shard ",
             rows[0].shard + 1);
}

// Every update is full, so a length in tokens does not depend on the ends of epochs.
int64_t MixedTextBatches::to_updates(const Length& length) const {
  return count_updates(length, updates_per_epoch_,
                       [&](int64_t num_tokens) { return ceil_div(num_tokens, tokens_per_update_); });
}

std::unique_ptr<MixedTextBatches> mix_texts(std::vector<Text> texts, const std::vector<std::string>& names,
                                            const std::vector<double>& weights, const BatchOptions& options,
                                            int64_t seed) {
  if (options.order == BatchOrder::sentence_streams)
    refuse_usage("train.batch.order", "blocks, streams or sentences with several training shards", "sentence-streams",
                 "make one shard of all texts, or set another train.batch.order");
  if (options.order == BatchOrder::streams)
    return std::make_unique<MixedStreams>(std::move(texts), names, weights, options);
  return std::make_unique<MixedBlocks>(std::move(texts), weights, options, seed);
}

}  // namespace mh::data
