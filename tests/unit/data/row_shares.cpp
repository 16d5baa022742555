// divide_rows(): the division of the rows of an update across processes, compared with all possible divisions.
#include "data/row_shares.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

using mh::data::BatchRowRange;
using mh::data::divide_rows;

namespace {

int64_t max_cost_of(const std::vector<int64_t>& row_costs, const std::vector<BatchRowRange>& ranges) {
  int64_t max_cost = 0;
  for (const BatchRowRange& range : ranges) {
    const auto begin = row_costs.begin() + range.first_row;
    max_cost = std::max(max_cost, std::accumulate(begin, begin + range.num_rows, int64_t{0}));
  }
  return max_cost;
}

// Returns the smallest possible cost of the most expensive range, over all divisions of the rows from `first_row` on
// into `num_shares` ranges.
int64_t best_max_cost(const std::vector<int64_t>& row_costs, size_t first_row, int64_t num_shares) {
  if (num_shares == 1)
    return std::accumulate(row_costs.begin() + static_cast<int64_t>(first_row), row_costs.end(), int64_t{0});
  int64_t best_cost = std::numeric_limits<int64_t>::max(), cost = 0;
  for (size_t end = first_row; end <= row_costs.size(); ++end) {
    best_cost = std::min(best_cost, std::max(cost, best_max_cost(row_costs, end, num_shares - 1)));
    if (end < row_costs.size()) cost += row_costs[end];
  }
  return best_cost;
}

}  // namespace

TEST_CASE("row shares: rows of equal cost are divided evenly, larger shares first") {
  CHECK((divide_rows(std::vector<int64_t>(8, 5), 3) == std::vector<BatchRowRange>{{0, 3}, {3, 3}, {6, 2}}));
  CHECK((divide_rows(std::vector<int64_t>(6, 5), 3) == std::vector<BatchRowRange>{{0, 2}, {2, 2}, {4, 2}}));
}

TEST_CASE("row shares: with more processes than rows, the last processes have no rows") {
  CHECK((divide_rows({7, 1}, 4) == std::vector<BatchRowRange>{{0, 1}, {1, 1}, {2, 0}, {2, 0}}));
  CHECK((divide_rows({}, 2) == std::vector<BatchRowRange>{{0, 0}, {0, 0}}));
}

TEST_CASE("row shares: shares cover all rows in order, and the most expensive share is as cheap as possible") {
  CHECK(rc::check([] {
    const int64_t num_shares = *rc::gen::inRange<int64_t>(1, 5);
    const auto row_costs =
        *rc::gen::resize(12, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 20)));
    const auto ranges = divide_rows(row_costs, num_shares);
    RC_ASSERT(static_cast<int64_t>(ranges.size()) == num_shares);
    int64_t end = 0;
    for (const BatchRowRange& range : ranges) {
      RC_ASSERT(range.first_row == end);
      RC_ASSERT(range.num_rows >= 0);
      RC_ASSERT(range.num_rows > 0 || static_cast<int64_t>(row_costs.size()) < num_shares);
      end += range.num_rows;
    }
    RC_ASSERT(end == static_cast<int64_t>(row_costs.size()));
    RC_ASSERT(max_cost_of(row_costs, ranges) == best_max_cost(row_costs, 0, num_shares));
  }));
}
