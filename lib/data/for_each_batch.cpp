#include "data/for_each_batch.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "attention/stage.h"
#include "base/prefetcher.h"
#include "data/pinned.h"
#include "model/memories.h"

namespace mh::data {

namespace {

// The mini-batches of a corpus; on a GPU, the next ones are loaded while the GPU computes.
class MiniBatchLoader {
 public:
  MiniBatchLoader(const MiniBatches& mini_batches, const at::Device& device) : mini_batches_(mini_batches) {
    if (!device.is_cpu())
      prefetcher_.emplace(kPrefetchDepth, [this] {
        std::optional<MiniBatch> mini_batch = mini_batches_.next();
        if (mini_batch) mini_batch->batch = pin_batch(std::move(mini_batch->batch));
        return mini_batch;
      });
  }
  // Returns the next mini-batch; nullopt after the last.
  std::optional<MiniBatch> next() { return prefetcher_ ? prefetcher_->next() : mini_batches_.next(); }

 private:
  const MiniBatches& mini_batches_;
  std::optional<Prefetcher<MiniBatch>> prefetcher_;
};

// Returns whether processes can compute mini-batches independently. With a memory, a mini-batch depends on the earlier
// mini-batches of its streams, so the processes need several groups of streams, that is, more than o.batch streams.
bool can_share(const ScoringOptions& o) {
  const int64_t num_streams = o.sample.blocks > 0 ? o.sample.blocks : o.streams;
  return o.memory == 0 || num_streams > o.batch;
}

}  // namespace

void for_each_batch(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
                    const BatchVisitor& visitor) {
  const ScoringOptions o = corpus.resolve(options, model);
  distributed::OrderedWork work(can_share(o) ? visitor.group : nullptr);
  if (work.is_shared() && !visitor.compute)
    throw std::logic_error("for_each_batch(): several processes need a visitor with compute()");
  const MiniBatches mini_batches = corpus.mini_batches(o);
  const at::Device device = model.parameters().device();
  MiniBatchLoader loader(mini_batches, device);
  std::unique_ptr<model::Memories> memory;
  int64_t num_completed_rows = 0;
  int64_t unit = -1;  // counts mini-batches, with a memory the groups of streams, whose mini-batches are consecutive
  while (!work.is_stopped()) {
    std::optional<MiniBatch> mini_batch = loader.next();
    if (!mini_batch) break;
    if (o.memory == 0 || mini_batch->starts_streams) ++unit;
    const auto shared_batch = std::make_shared<ForwardedBatch>(ForwardedBatch{std::move(*mini_batch), {}});
    ForwardedBatch& batch = *shared_batch;
    const auto run_model = [&] {
      if (batch.starts_streams && o.memory > 0) memory = model.new_memory(o.memory);
      attention::Observer* observer = batch.is_scored ? visitor.observer : nullptr;
      if (observer != nullptr) observer->begin_batch(batch.batch.input.lengths);
      batch.hidden = model.hidden(batch.batch.input.to(device), {}, memory.get(), observer);
    };
    const auto compute = [&]() -> distributed::OrderedWork::Results {
      run_model();
      if (!batch.is_scored) return {};
      if (visitor.visit) visitor.visit(batch);
      distributed::OrderedWork::Results results =
          visitor.compute ? visitor.compute(batch) : distributed::OrderedWork::Results{};
      batch.hidden.reset();
      return results;
    };
    work.add(unit, compute, [&, shared_batch](const distributed::OrderedWork::Results& results) {
      if (shared_batch->is_scored && visitor.add) visitor.add(*shared_batch, results);
      if (visitor.on_progress)
        visitor.on_progress(num_completed_rows += shared_batch->progress_rows, mini_batches.num_rows);
    });
  }
  if (!work.is_stopped()) work.finish();
}

}  // namespace mh::data
