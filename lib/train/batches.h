// Imports data::Batches.
#pragma once

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;

}  // namespace mh::train
