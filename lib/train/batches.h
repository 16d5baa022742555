// The batches of training by the options of [train].
#pragma once

#include <memory>
#include <utility>

#include "data/batches.h"
#include "train/options.h"

namespace mh::train {

using data::Batches;
using data::TextBatches;
using data::updates_in;

// Returns the batches of a corpus that they own. Throws Error(usage) for options that exclude one another.
template <class Corpus>
auto make_batches(Corpus corpus, const TrainOptions& options) {
  options.check();
  return data::make_batches(std::move(corpus), options.batch, options.seed);
}

}  // namespace mh::train
