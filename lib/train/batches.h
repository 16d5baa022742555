// The batches of training, and conversions of lengths to updates before batches exist.
#pragma once

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;

// Returns the number of updates in a length. `batches`: null before the data are opened; an epoch then has an unknown
// number of updates, and a length in epochs returns 0.
inline int64_t updates_in(const Length& length, const BatchOptions& options, const Batches* batches) {
  return batches != nullptr ? batches->updates(length) : data::updates_in(length, options, 0);
}

}  // namespace mh::train
