// Enumeration of the experts of a mixture of attentive experts: each expert omits a set of `drop` of the `heads` heads.
// The sets are in lexicographic order: with drop = 2, {0, 1}, {0, 2}, …, {h-2, h-1}.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace mh::attention {

// Returns the number of experts, heads! / (drop! (heads - drop)!), or the largest int64_t if the computation would
// overflow; 0 if drop is negative or above heads.
inline int64_t expert_count(int64_t heads, int64_t drop) {
  if (drop < 0 || drop > heads) return 0;
  const int64_t num_factors = std::min(drop, heads - drop);
  int64_t count = 1;
  for (int64_t i = 0; i < num_factors; ++i) {
    // count * (heads - i) overflows only if the result is at least 2^63 / num_factors, since the count increases with
    // i.
    if (count > std::numeric_limits<int64_t>::max() / (heads - i)) return std::numeric_limits<int64_t>::max();
    count = count * (heads - i) / (i + 1);
  }
  return count;
}

// Returns the heads that each expert omits, in ascending order; no experts if drop is negative or above heads.
inline std::vector<std::vector<int64_t>> experts(int64_t heads, int64_t drop) {
  std::vector<std::vector<int64_t>> subsets;
  if (drop < 0 || drop > heads) return subsets;
  std::vector<int64_t> subset(static_cast<size_t>(drop));
  for (int64_t i = 0; i < drop; ++i) subset[static_cast<size_t>(i)] = i;
  for (;;) {
    subsets.push_back(subset);
    // Increments the last element of the subset that is not at its maximum, and makes the later elements consecutive.
    int64_t i = drop - 1;
    while (i >= 0 && subset[static_cast<size_t>(i)] == heads - drop + i) --i;
    if (i < 0) return subsets;
    for (int64_t head = subset[static_cast<size_t>(i)] + 1; i < drop; ++i) subset[static_cast<size_t>(i)] = head++;
  }
}

}  // namespace mh::attention
