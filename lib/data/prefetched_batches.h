// Batches that are loaded before training asks for them, in a thread of their own: while a GPU computes, the host has
// nothing else to do. On a CPU the thread would take from the threads that compute as much as it gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/batches.h"

namespace mh::data {

// The same batches, each through `prepare`, of updates below `end`. Any update may be asked for; those that follow it
// are on their way then. As a batch follows from its number, what is on its way counts for nothing, neither in a
// training state nor where another update is asked for.
std::unique_ptr<Batches> prefetch(std::unique_ptr<Batches> batches, int64_t end, std::function<Batch(Batch)> prepare);

}  // namespace mh::data
