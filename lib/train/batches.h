// Imports data::Batches into mh::train, whose interfaces use it.
#pragma once

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;

}  // namespace mh::train
