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
  std::optional<Prefetcher<MiniBatch>> prefetched;
  if (!device.is_cpu())
    prefetched.emplace(kPrefetchDepth, [&batches] {
      std::optional<MiniBatch> batch = batches.next();
      if (batch) batch->batch = pinned(std::move(batch->batch));
      return batch;
    });
  std::unique_ptr<model::Memories> memory;
  int64_t done = 0;
  while (stop_signal() == 0) {
    std::optional<MiniBatch> batch = prefetched ? prefetched->next() : batches.next();
    if (!batch) return;
    VisitedBatch now{std::move(*batch), {}};
    if (now.begins && o.memory > 0) memory = model.new_memory(o.memory);
    attention::Observer* observer = now.visited ? visitor.observer : nullptr;
    if (observer != nullptr) observer->begin(now.batch.input.lengths);
    now.hidden = model.hidden(now.batch.input.to(device), {}, memory.get(), observer);
    if (now.visited) visitor.visit(now);
    if (visitor.progress) visitor.progress(done += now.done, batches.rows);
  }
}

}  // namespace mh::data
