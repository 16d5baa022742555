// Batches that are loaded before training asks for them, in a thread of their own: while a GPU computes, the host has
// nothing else to do. On a CPU the thread would take from the threads that compute as much as it gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "train/batches.h"

namespace mh::train {

// The same batches, each through `prepare`, of updates below `end`. Any update may be asked for; those that follow it
// are on their way then. As a batch follows from its number, what is on its way counts for nothing, neither in a
// training state nor where another update is asked for.
std::unique_ptr<Batches> ahead_of(std::unique_ptr<Batches> batches, int64_t end,
                                  std::function<task::Batch(task::Batch)> prepare);

}  // namespace mh::train
