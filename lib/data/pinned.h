// Batches in pinned memory, for asynchronous copies to a GPU.
#pragma once

#include "data/batch.h"

namespace mh::data {

// Number of batches prepared in advance: one to copy from and one to fill.
constexpr size_t kPrefetchDepth = 2;

// Returns the batch in pinned memory, from which Input::to() copies asynchronously; lengths, which the host reads, stay
// in ordinary memory. Requires a GPU (nn/device.h).
Batch pinned(Batch batch);

}  // namespace mh::data
