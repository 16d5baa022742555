// Batches loaded in advance by a thread. While a GPU computes, the host is idle; on a CPU the thread would take as much
// time from computation as it saves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/batches.h"

namespace mh::data {

// Returns the same batches, each passed through `prepare`, of updates below `end`. Any update may be requested; the
// updates after it are then prefetched. As a batch follows from its number, prefetched batches are no part of a
// training state and are dropped when another update is requested.
std::unique_ptr<Batches> prefetch(std::unique_ptr<Batches> batches, int64_t end, std::function<Batch(Batch)> prepare);

}  // namespace mh::data
