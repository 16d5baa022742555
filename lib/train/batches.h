// Imports data::Batches, and converts lengths of training to updates when batches may not exist yet.
#pragma once

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;

// Converts a length of training to updates. `batches`: null before the data are opened; an epoch then has an unknown
// number of updates, and a length in epochs gives 0.
inline int64_t length_to_updates(const Length& length, const BatchOptions& options, const Batches* batches) {
  return batches != nullptr ? batches->updates(length) : data::length_to_updates(length, options, 0);
}

}  // namespace mh::train
