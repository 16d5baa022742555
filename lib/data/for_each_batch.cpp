#include "data/for_each_batch.h"

#include <memory>
#include <optional>
#include <utility>

#include "attention/stage.h"
#include "base/prefetcher.h"
#include "base/signals.h"
#include "data/pinned.h"
#include "model/memories.h"

namespace mh::data {

void for_each_batch(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
                    const BatchVisitor& visitor) {
  const ScoringOptions o = corpus.resolve(options, model);
  const MiniBatches batches = corpus.mini_batches(o);
  const at::Device device = model.parameters().device();
  // The CPU is idle while a GPU computes, so it prepares the next mini-batches in the meantime.
  std::optional<Prefetcher<MiniBatch>> prefetcher;
  if (!device.is_cpu())
    prefetcher.emplace(kPrefetchDepth, [&batches] {
      std::optional<MiniBatch> mini_batch = batches.next();
      if (mini_batch) mini_batch->batch = pin_batch(std::move(mini_batch->batch));
      return mini_batch;
    });
  std::unique_ptr<model::Memories> memory;
  int64_t num_completed_rows = 0;
  while (stop_signal() == 0) {
    std::optional<MiniBatch> mini_batch = prefetcher ? prefetcher->next() : batches.next();
    if (!mini_batch) return;
    ForwardedBatch forwarded_batch{std::move(*mini_batch), {}};
    if (forwarded_batch.starts_streams && o.memory > 0) memory = model.new_memory(o.memory);
    attention::Observer* observer = forwarded_batch.is_scored ? visitor.observer : nullptr;
    if (observer != nullptr) observer->begin_batch(forwarded_batch.batch.input.lengths);
    forwarded_batch.hidden = model.hidden(forwarded_batch.batch.input.to(device), {}, memory.get(), observer);
    if (forwarded_batch.is_scored) visitor.visit(forwarded_batch);
    if (visitor.on_progress) visitor.on_progress(num_completed_rows += forwarded_batch.progress_rows, batches.num_rows);
  }
}

}  // namespace mh::data
