// Mixtures of sentence pairs, examples or sentences of texts, whose updates belong to one shard each.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/mixed_batches.h"

namespace mh::data {

namespace {

class MixedUpdates : public Batches {
 public:
  MixedUpdates(std::vector<std::unique_ptr<Batches>> shards, const std::vector<int64_t>& num_targets,
               const std::vector<double>& weights)
      : shards_(std::move(shards)),
        num_targets_(std::accumulate(num_targets.begin(), num_targets.end(), int64_t{0})),
        order_(Shares(weights)),
        log_order_(Shares(weights)) {
    shard_shares_ = normalise_weights(weights);
    for (const auto& shard : shards_) {
      updates_per_epoch_ += shard->updates_per_epoch();
      tokens_per_update_ = std::max(tokens_per_update_, shard->tokens_per_update());
    }
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    const auto [shard, index] = order_.at(update);
    return shards_[shard]->row_costs(index);
  }
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    const auto [shard, index] = order_.at(update);
    return shards_[shard]->micro_batches_of(index, rows);
  }
  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const auto [shard, index] = order_.at(update);
    return shards_[shard]->load(index, micro_batch);
  }
  std::string describe_rows(int64_t update) override {
    const auto [shard, index] = order_.at(update);
    return str(shards_[shard]->describe_rows(index), ", training shard ", shard + 1);
  }
  int64_t to_updates(const Length& length) const override {
    if (length.unit == Length::Unit::tokens)
      shards_[0]->to_updates(length);  // throws for examples, which accept no length in tokens
    return mean_length_to_updates(length, updates_per_epoch_, num_targets_);
  }
  std::vector<double> shard_epochs(int64_t num_updates) override {
    const std::vector<int64_t>& counts = log_order_.counts_before(num_updates);
    std::vector<double> epochs;
    for (size_t i = 0; i < counts.size(); ++i)
      epochs.push_back(static_cast<double>(counts[i]) / static_cast<double>(shards_[i]->updates_per_epoch()));
    return epochs;
  }

 private:
  const std::vector<std::unique_ptr<Batches>> shards_;
  const int64_t num_targets_;  // number of targets in an epoch of all shards
  BlendedOrder order_;
  // The same order, read by shard_epochs(), which may run in another thread than the other functions.
  BlendedOrder log_order_;
};

}  // namespace

std::unique_ptr<Batches> mix_updates(std::vector<std::unique_ptr<Batches>> shards,
                                     const std::vector<int64_t>& num_targets, const std::vector<double>& weights) {
  return std::make_unique<MixedUpdates>(std::move(shards), num_targets, weights);
}

}  // namespace mh::data
