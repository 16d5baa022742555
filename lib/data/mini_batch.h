// Rows that a model is scored on together.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "data/batch.h"

namespace mh::data {

struct MiniBatch {
  std::vector<Row> rows;
  Batch batch;
  // Rows of one stream follow each other from mini-batch to mini-batch; pairs and examples have a stream each.
  int64_t first_stream = 0;
  bool begins = false;  // streams begin here, with an empty memory
  bool visited = true;  // false: only fills the memory
  bool last = false;    // the rows of the next mini-batch stand after all rows of these streams
  int64_t done = 0;     // rows that progress counts

  int64_t stream_of(size_t row) const {
    return rows[row].pair >= 0 ? rows[row].pair : first_stream + static_cast<int64_t>(row);
  }
};

struct MiniBatches {
  std::function<std::optional<MiniBatch>()> next;  // one after the other; none after the last
  int64_t rows = 0;                                // that progress counts
};

}  // namespace mh::data
