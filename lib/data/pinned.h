// Batches on their way to a GPU.
#pragma once

#include "data/batch.h"

namespace mh::data {

// How many are made before they are asked for: one to copy from and one to make.
constexpr size_t kPrefetchDepth = 2;

// The same in pinned memory, from which Input::to() copies while the host goes on; lengths stay where they are asked
// for. Only where there is a GPU (nn/device.h).
Batch pinned(Batch batch);

}  // namespace mh::data
