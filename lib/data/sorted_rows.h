// Mini-batches of independent rows of different lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "data/mini_batch.h"

namespace mh::data {

struct SortedRows {
  // Returns the numbers of tokens by which rows are sorted, the first number first; a forward pass pads a row to the
  // larger number of its mini-batch.
  std::function<std::pair<int64_t, int64_t>(int64_t row)> lengths;
  // Returns a batch of the rows with these indices, and appends a Row with a record index for each of them to `rows`,
  // which is empty.
  std::function<Batch(const std::vector<int64_t>& indices, std::vector<Row>& rows)> load;
};

// Returns mini-batches that score each of the rows `row_indices`, in ascending order, once. Rows of similar length
// share a mini-batch, which has at most `max_batch_tokens` tokens, padding included, unless it is a single row.
MiniBatches sorted_mini_batches(std::vector<int64_t> row_indices, int64_t max_batch_tokens, const SortedRows& rows);

}  // namespace mh::data
