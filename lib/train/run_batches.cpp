#include "train/run_batches.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/mixed_batches.h"

namespace mh::train {

namespace {

// The batches of two successive phases of training: `first_phase` until training reaches the length `phase_boundary`,
// then `second_phase`, whose updates count from 0.
class TwoPhaseBatches : public Batches {
 public:
  TwoPhaseBatches(std::unique_ptr<Batches> first_phase, std::unique_ptr<Batches> second_phase,
                  const Length& phase_boundary)
      : first_phase_(std::move(first_phase)),
        second_phase_(std::move(second_phase)),
        phase_boundary_(first_phase_->to_updates(phase_boundary)) {
    copy_base_members(*first_phase_);
    tokens_per_update_ = std::max(first_phase_->tokens_per_update(), second_phase_->tokens_per_update());
  }
  std::vector<int64_t> row_costs(int64_t update) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->row_costs(phase_update);
  }
  std::vector<MicroBatch> micro_batches_of(int64_t update, const data::BatchRowRange& rows) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->micro_batches_of(phase_update, rows);
  }
  data::Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->load(phase_update, micro_batch);
  }
  std::string describe_rows(int64_t update) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->describe_rows(phase_update);
  }
  int64_t to_updates(const Length& length) const override { return first_phase_->to_updates(length); }
  std::vector<double> shard_epochs(int64_t num_updates) override {
    std::vector<double> epochs = first_phase_->shard_epochs(std::min(num_updates, phase_boundary_));
    if (num_updates <= phase_boundary_) return epochs;
    const std::vector<double> second_phase_epochs = second_phase_->shard_epochs(num_updates - phase_boundary_);
    for (size_t i = 0; i < epochs.size(); ++i) epochs[i] += second_phase_epochs[i];
    return epochs;
  }

 private:
  std::pair<Batches*, int64_t> phase_of(int64_t update) const {
    return update < phase_boundary_ ? std::pair(first_phase_.get(), update)
                                    : std::pair(second_phase_.get(), update - phase_boundary_);
  }

  std::unique_ptr<Batches> first_phase_, second_phase_;
  int64_t phase_boundary_;  // first update of the second phase, whose rows have up to long_sequence_length tokens
};

}  // namespace

std::unique_ptr<Batches> batches_of(const RunConfig& run, const TrainShards& shards,
                                    const text::Tokenizers& tokenizers) {
  std::vector<double> weights = run.data.weights;
  const auto make_phase = [&](const RunConfig& r) {
    r.train.check();
    // Batches share the tokens of their corpora, so the records and datasets may be destroyed at the end of this
    // function.
    std::vector<std::unique_ptr<text::FileRecords>> records;
    std::vector<std::unique_ptr<task::Dataset>> datasets;
    std::vector<data::WeightedCorpus> corpora;
    for (const auto& shard : shards) {
      task::DatasetOptions options = r.dataset_options(true);
      const auto index = static_cast<int64_t>(records.size());
      options.seed = static_cast<uint64_t>(data::seed_of_shard(r.train.seed, index));
      records.push_back(std::make_unique<text::FileRecords>(*shard));
      datasets.push_back(r.task().open(*records.back(), tokenizers, options));
      corpora.push_back({&datasets.back()->corpus(), shard->name(), 1});
    }
    if (corpora.size() == 1) return corpora[0].corpus->batches(r.train.batch, r.train.seed);
    // The second phase keeps the weights of the first phase.
    if (weights.empty())
      for (const data::WeightedCorpus& corpus : corpora)
        weights.push_back(static_cast<double>(corpus.corpus->num_targets()));
    for (size_t i = 0; i < corpora.size(); ++i) corpora[i].weight = weights[i];
    return data::mix_batches(corpora, r.train.batch, r.train.seed);
  };
  if (run.train.batch.long_sequence_length == 0) return make_phase(run);
  RunConfig second_phase_run = run;
  second_phase_run.train.batch.sequence_length = run.train.batch.long_sequence_length;
  second_phase_run.tasks.replace(
      run.task().clone_for_long_rows(run.train.batch.sequence_length, run.train.batch.long_sequence_length));
  second_phase_run.train.batch.tokens =
      std::max(second_phase_run.train.batch.tokens, second_phase_run.train.batch.sequence_length);
  auto first_phase = make_phase(run);
  auto second_phase = make_phase(second_phase_run);
  return std::make_unique<TwoPhaseBatches>(std::move(first_phase), std::move(second_phase), run.train.batch.long_from);
}

std::string describe_shards(const DataOptions& options, const std::vector<double>& shares) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < shares.size(); ++i)
    texts.push_back(str(options.train_paths[i], " with weight ", fixed_decimal(shares[i], 4)));
  return str(
      "the training shards are mixed: ", join(texts, ", "),
      options.weights.empty() ? "; data.weights is not set, so the weights are the fractions of the targets" : "");
}

int64_t length_to_updates(const Length& length, const RunConfig& run, const Batches* batches) {
  if (batches != nullptr) return batches->to_updates(length);
  const task::TaskTraits traits = run.task().traits();
  if (traits.has_text_order && run.train.batch.order != BatchOrder::sentences)
    return data::length_to_updates(length, run.train.batch, 0);
  if (traits.counts_rows) return data::example_length_to_updates(length, 0);
  return data::count_updates(length, 0, [](int64_t) { return int64_t{0}; });
}

}  // namespace mh::train
