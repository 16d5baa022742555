// The batches of training, and how many updates a length has before there are any.
#pragma once

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;

// Number of updates in a length. `batches`: null where there are no data yet; then 0 for epochs, whose updates are
// unknown.
inline int64_t updates_in(const Length& length, const BatchOptions& options, const Batches* batches) {
  return batches != nullptr ? batches->updates(length) : data::updates_in(length, options, 0);
}

}  // namespace mh::train
