#include "data/row_shares.h"

#include <algorithm>
#include <numeric>

namespace mh::data {

namespace {

// Returns whether `num_shares` consecutive ranges can hold all rows if no range costs more than `max_cost`.
bool can_divide(const std::vector<int64_t>& row_costs, int64_t num_shares, int64_t max_cost) {
  int64_t num_ranges = 1, cost = 0;
  for (const int64_t row_cost : row_costs) {
    if (cost + row_cost > max_cost) ++num_ranges, cost = 0;
    cost += row_cost;
  }
  return num_ranges <= num_shares;
}

}  // namespace

std::vector<BatchRowRange> divide_rows(const std::vector<int64_t>& row_costs, int64_t num_shares) {
  const auto num_rows = static_cast<int64_t>(row_costs.size());
  std::vector<BatchRowRange> ranges;
  const bool are_equal =
      std::adjacent_find(row_costs.begin(), row_costs.end(), std::not_equal_to<>()) == row_costs.end();
  if (are_equal || num_rows <= num_shares) {
    for (int64_t share = 0, first = 0; share < num_shares; ++share) {
      const int64_t count = num_rows / num_shares + (share < num_rows % num_shares ? 1 : 0);
      ranges.push_back({first, count});
      first += count;
    }
    return ranges;
  }
  // Binary search for the smallest possible cost of the most expensive range.
  int64_t low = *std::max_element(row_costs.begin(), row_costs.end()),
          high = std::accumulate(row_costs.begin(), row_costs.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (can_divide(row_costs, num_shares, middle)) high = middle;
    else low = middle + 1;
  }
  // Fills each range up to the cost `low`, but leaves at least one row for each later range.
  for (int64_t share = 0, first = 0; share < num_shares; ++share) {
    const int64_t max_rows = num_rows - first - (num_shares - 1 - share);
    int64_t count = 0, cost = 0;
    while (count < max_rows && (count == 0 || cost + row_costs[static_cast<size_t>(first + count)] <= low))
      cost += row_costs[static_cast<size_t>(first + count++)];
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

}  // namespace mh::data
