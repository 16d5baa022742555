#include "train/run_batches.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mh::train {

namespace {

// The batches of two successive phases of training: `first` until training has the length `phase_boundary`, then
// `second`, whose updates count from 0.
class TwoPhaseBatches : public Batches {
 public:
  TwoPhaseBatches(std::unique_ptr<Batches> first, std::unique_ptr<Batches> second, const Length& phase_boundary)
      : first_(std::move(first)), second_(std::move(second)), phase_boundary_(first_->updates(phase_boundary)) {
    updates_per_epoch_ = first_->updates_per_epoch();
    tokens_ = std::max(first_->tokens_per_update(), second_->tokens_per_update());
  }
  std::vector<MicroBatch> micro_batches(int64_t update) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->micro_batches(phase_update);
  }
  data::Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->load(phase_update, micro_batch);
  }
  std::string describe_rows(int64_t update) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->describe_rows(phase_update);
  }
  int64_t updates(const Length& length) const override { return first_->updates(length); }

 private:
  std::pair<Batches*, int64_t> phase_of(int64_t update) const {
    return update < phase_boundary_ ? std::pair(first_.get(), update)
                                    : std::pair(second_.get(), update - phase_boundary_);
  }

  std::unique_ptr<Batches> first_, second_;
  int64_t phase_boundary_;  // first update of the second phase, whose rows have train.batch.long_block tokens
};

}  // namespace

std::unique_ptr<Batches> batches_of(const RunConfig& run, const io::ShardFile& shard,
                                    const text::Tokenizers& tokenizers) {
  const auto make_phase = [&](const RunConfig& r) {
    r.train.check();
    return r.task()
        .open(text::FileRecords(shard), tokenizers, r.dataset_options(true))
        ->corpus()
        .batches(r.train.batch, r.train.seed);
  };
  if (run.train.batch.long_block == 0) return make_phase(run);
  RunConfig second_phase_run = run;
  second_phase_run.train.batch.block = run.train.batch.long_block;
  second_phase_run.tasks.replace(run.task().clone_for_long_rows(run.train.batch.block, run.train.batch.long_block));
  second_phase_run.train.batch.tokens =
      std::max(second_phase_run.train.batch.tokens, second_phase_run.train.batch.block);
  return std::make_unique<TwoPhaseBatches>(make_phase(run), make_phase(second_phase_run), run.train.batch.long_from);
}

int64_t length_to_updates(const Length& length, const RunConfig& run, const Batches* batches) {
  if (batches != nullptr) return batches->updates(length);
  const task::Traits traits = run.task().traits();
  if (traits.text_order) return data::length_to_updates(length, run.train.batch, 0);
  if (traits.counts_rows) return data::example_length_to_updates(length, 0);
  return data::count_updates(length, 0, [](int64_t) { return int64_t{0}; });
}

}  // namespace mh::train
