#include "train/run_batches.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

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
    updates_per_epoch_ = first_phase_->updates_per_epoch();
    tokens_per_update_ = std::max(first_phase_->tokens_per_update(), second_phase_->tokens_per_update());
  }
  std::vector<int64_t> row_costs(int64_t update) override {
    const auto [batches, phase_update] = phase_of(update);
    return batches->row_costs(phase_update);
  }
  std::vector<MicroBatch> micro_batches_of(int64_t update, const data::RowRange& rows) override {
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

 private:
  std::pair<Batches*, int64_t> phase_of(int64_t update) const {
    return update < phase_boundary_ ? std::pair(first_phase_.get(), update)
                                    : std::pair(second_phase_.get(), update - phase_boundary_);
  }

  std::unique_ptr<Batches> first_phase_, second_phase_;
  int64_t phase_boundary_;  // first update of the second phase, whose rows have up to long_block tokens
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
  if (batches != nullptr) return batches->to_updates(length);
  const task::TaskTraits traits = run.task().traits();
  if (traits.has_text_order) return data::length_to_updates(length, run.train.batch, 0);
  if (traits.counts_rows) return data::example_length_to_updates(length, 0);
  return data::count_updates(length, 0, [](int64_t) { return int64_t{0}; });
}

}  // namespace mh::train
