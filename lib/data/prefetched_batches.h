// Prefetches training batches in a thread. Use only with a GPU: the CPU is idle while the GPU computes, whereas on a
// CPU the thread would take as much time from the computation as it saves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/batches.h"

namespace mh::data {

// Returns Batches that pass every batch of `batches` through `prepare` (such as pin_batch()) and prefetch the updates
// that follow the last requested update, up to `end_update` - 1. Updates may be requested in any order; a request out
// of order discards the queue. The queue is not part of a training state, since the update number determines a batch.
std::unique_ptr<Batches> prefetch_batches(std::unique_ptr<Batches> batches, int64_t end_update,
                                          std::function<Batch(Batch)> prepare);

}  // namespace mh::data
