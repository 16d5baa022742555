// Rows that a model scores together.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "data/batch.h"

namespace mh::data {

struct MiniBatch {
  std::vector<Row> rows;
  Batch batch;
  // Rows of a stream continue each other from mini-batch to mini-batch; each pair or example is a stream of its own.
  int64_t first_stream = 0;
  bool begins = false;  // the streams begin here, with an empty memory
  bool visited = true;  // false: only fills the memory
  bool last = false;    // the next mini-batch begins other streams
  int64_t done = 0;     // rows for the progress bar

  int64_t stream_of(size_t row) const {
    return rows[row].pair >= 0 ? rows[row].pair : first_stream + static_cast<int64_t>(row);
  }
};

struct MiniBatches {
  std::function<std::optional<MiniBatch>()> next;  // returns the next mini-batch; none after the last
  int64_t rows = 0;                                // total rows for the progress bar
};

}  // namespace mh::data
