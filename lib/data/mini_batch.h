// Mini-batches of scoring: the rows of one forward pass.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "data/batch.h"

namespace mh::data {

struct MiniBatch {
  std::vector<Row> rows;
  Batch batch;
  // text: stream of rows[0]; rows[i] belongs to stream first_stream + i. Unless `starts_streams` is set, each row
  // continues the row of the same stream in the previous mini-batch.
  int64_t first_stream = 0;
  bool starts_streams = false;  // text: whether the rows are the first rows of their streams, so the memory is empty
  bool is_scored = true;        // whether the rows are scored; false: they only fill the memory
  // streams of a text: whether the next mini-batch, if any, belongs to other streams; rows sorted by length: whether
  // all rows that were sorted together are complete, so that the results of these rows can be reported in the order of
  // the corpus
  bool ends_streams = false;
  int64_t progress_rows = 0;  // number of rows that this mini-batch adds to the progress bar

  // Returns the stream of a row; each row with a record index is a stream of its own.
  int64_t stream_of(size_t row) const {
    return rows[row].record_index >= 0 ? rows[row].record_index : first_stream + static_cast<int64_t>(row);
  }
};

struct MiniBatches {
  std::function<std::optional<MiniBatch>()> next;  // returns the next mini-batch, or nullopt after the last
  int64_t num_rows = 0;                            // total number of rows for the progress bar
};

}  // namespace mh::data
