// Division of the rows of an update among the processes of a job.
#pragma once

#include <cstdint>
#include <vector>

namespace mh::data {

// The consecutive batch rows [first_row, first_row + num_rows) of an update.
struct BatchRowRange {
  int64_t first_row = 0, num_rows = 0;
  bool operator==(const BatchRowRange&) const = default;
};

// Divides rows with the costs `row_costs`, such as their numbers of tokens, into `num_shares` consecutive ranges so
// that the cost of the most expensive range is minimal. Range i belongs to the process of rank i. Rows of equal cost
// are divided into ranges that differ by at most one row, larger ranges first. If there are fewer rows than shares, the
// last ranges are empty. The result depends only on the arguments, so each process computes the ranges of all
// processes. Requires `num_shares` above 0 and no negative cost.
std::vector<BatchRowRange> divide_rows(const std::vector<int64_t>& row_costs, int64_t num_shares);

}  // namespace mh::data
