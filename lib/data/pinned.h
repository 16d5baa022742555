// Copies batches to pinned memory, for asynchronous transfers to a GPU.
#pragma once

#include "data/batch.h"

namespace mh::data {

// Capacity of a prefetch queue, in mini-batches of scoring or updates of training. Two suffice: the first is copied to
// the GPU while the second is prepared.
constexpr size_t kPrefetchDepth = 2;

// Returns the batch with its tensors, except for the lengths, in pinned memory, so that model::Input::to() copies
// asynchronously. The lengths stay in pageable memory, since only the CPU reads them. Requires a GPU (nn/device.h).
Batch pin_batch(Batch batch);

}  // namespace mh::data
