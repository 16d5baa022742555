#include "data/prefetched_batches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/prefetcher.h"
#include "data/pinned.h"

namespace mh::data {

namespace {

// An update that the prefetch thread has loaded.
struct LoadedUpdate {
  int64_t update = 0;
  std::vector<Batches::MicroBatch> micro_batches;
  std::vector<Batch> batches;  // batches[i]: input and targets of micro_batches[i]
};

class PrefetchedBatches : public Batches {
 public:
  PrefetchedBatches(std::unique_ptr<Batches> batches, int64_t end_update, std::function<Batch(Batch)> prepare)
      : batches_(std::move(batches)), end_update_(end_update), prepare_(std::move(prepare)) {
    copy_base_members(*batches_);
  }

  std::vector<MicroBatch> micro_batches(int64_t update) override { return fetch(update).micro_batches; }
  // Returns a batch that shares the tensors of the prefetched batch: every pass of the update loads the same batch.
  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const LoadedUpdate& requested_update = fetch(update);
    const auto& micro_batches = requested_update.micro_batches;
    return requested_update.batches.at(static_cast<size_t>(
        std::find(micro_batches.begin(), micro_batches.end(), micro_batch) - micro_batches.begin()));
  }
  std::vector<int64_t> row_costs(int64_t update) override { return stop_prefetching().row_costs(update); }
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    return stop_prefetching().micro_batches_of(update, rows);
  }
  BatchRowRange own_rows(int64_t update) override { return stop_prefetching().own_rows(update); }
  std::string describe_rows(int64_t update) override { return stop_prefetching().describe_rows(update); }
  bool continues_streams(int64_t update) const override { return batches_->continues_streams(update); }
  int64_t to_updates(const Length& length) const override { return batches_->to_updates(length); }
  std::vector<double> shard_epochs(int64_t num_updates) override { return batches_->shard_epochs(num_updates); }

 private:
  // Stops the prefetch thread, since batches_ is not thread-safe, and returns batches_.
  Batches& stop_prefetching() {
    prefetch_queue_.reset();
    return *batches_;
  }

  const LoadedUpdate& fetch(int64_t update) {
    if (current_update_ && current_update_->update == update) return *current_update_;
    if (prefetch_queue_ == nullptr || !current_update_ || update != current_update_->update + 1) restart_queue(update);
    current_update_ = prefetch_queue_->next();
    if (!current_update_) {  // the queue has ended, since `update` is not below end_update_
      restart_queue(update);
      current_update_ = prefetch_queue_->next();
    }
    return *current_update_;
  }

  // Discards the prefetch queue, and starts a queue whose first update is `update`.
  void restart_queue(int64_t update) {
    prefetch_queue_.reset();
    // If the new queue throws, fetch() must not assume that the queue continues at current_update_->update + 1.
    current_update_.reset();
    prefetch_queue_ = std::make_unique<Prefetcher<LoadedUpdate>>(
        kPrefetchDepth,
        [this, next_update = update, end = std::max(end_update_, update + 1)]() mutable -> std::optional<LoadedUpdate> {
          if (next_update >= end) return std::nullopt;
          LoadedUpdate loaded_update{next_update++, {}, {}};
          loaded_update.micro_batches = batches_->micro_batches(loaded_update.update);
          for (const MicroBatch& micro_batch : loaded_update.micro_batches)
            loaded_update.batches.push_back(prepare_(batches_->load(loaded_update.update, micro_batch)));
          return loaded_update;
        });
  }

  const std::unique_ptr<Batches> batches_;  // used only by the prefetch thread while that thread runs
  const int64_t end_update_;
  const std::function<Batch(Batch)> prepare_;
  std::optional<LoadedUpdate> current_update_;
  std::unique_ptr<Prefetcher<LoadedUpdate>> prefetch_queue_;  // queue of the updates after current_update_
};

}  // namespace

std::unique_ptr<Batches> prefetch_batches(std::unique_ptr<Batches> batches, int64_t end_update,
                                          std::function<Batch(Batch)> prepare) {
  return std::make_unique<PrefetchedBatches>(std::move(batches), end_update, std::move(prepare));
}

}  // namespace mh::data
