// Batches of one of several processes that train one model.
#pragma once

#include <memory>

#include "data/batches.h"

namespace mh::data {

// Returns Batches whose own_rows() and micro_batches() contain only the rows that process `rank` of `num_processes`
// computes (divide_rows()). All other functions refer to all rows of an update, so rows keep their indices.
// `adds_fillers`: appends micro-batches of one row (MicroBatch::is_filler) until the process has as many micro-batches
// as the process with the most; for models whose stages exchange statistics in each micro-batch.
std::unique_ptr<Batches> share_batches(std::unique_ptr<Batches> batches, int rank, int num_processes,
                                       bool adds_fillers = false);

}  // namespace mh::data
