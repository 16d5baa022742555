// The division of the elements of all parameters among the processes that hold and update their moments.
#include "train/optimizer_shards.h"

#include <catch2/catch.hpp>
#include <numeric>

using namespace mh::train;

TEST_CASE("optimiser shards: equal ranges are consecutive, cover all elements, and differ in size by at most one") {
  for (const int64_t num_elements : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}, int64_t{1} << 60})
    for (const int64_t num_ranges : {1, 2, 3, 7, 64}) {
      CAPTURE(num_elements, num_ranges);
      int64_t end = 0, smallest = num_elements, largest = 0;
      for (int64_t i = 0; i < num_ranges; ++i) {
        const ElementRange range = equal_range(num_elements, num_ranges, i);
        REQUIRE(range.begin == end);
        REQUIRE(range.size() >= 0);
        end = range.end;
        smallest = std::min(smallest, range.size()), largest = std::max(largest, range.size());
      }
      CHECK(end == num_elements);
      CHECK(largest - smallest <= 1);
    }
}

TEST_CASE("optimiser shards: each element of each parameter belongs to the rank whose range contains it") {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 0, 1, 40, 7}, {2}, {}, {1, 1}})
    for (const int num_ranks : {1, 2, 3, 5}) {
      const OptimizerShards shards(sizes, num_ranks);
      const int64_t num_elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
      CHECK(shards.num_elements() == num_elements);
      int64_t position = 0;  // of an element in the sequence of all elements
      for (size_t parameter = 0; parameter < sizes.size(); ++parameter) {
        CHECK(shards.size(parameter) == sizes[parameter]);
        for (int64_t element = 0; element < sizes[parameter]; ++element, ++position)
          for (int rank = 0; rank < num_ranks; ++rank) {
            const ElementRange range = equal_range(num_elements, num_ranks, rank),
                               own_range = shards.of(parameter, rank);
            const bool is_in_range = position >= range.begin && position < range.end;
            REQUIRE((element >= own_range.begin && element < own_range.end) == is_in_range);
            REQUIRE(own_range.begin >= 0);
            REQUIRE(own_range.end <= sizes[parameter]);
          }
      }
    }
}
