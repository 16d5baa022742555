// Enumeration of the experts of a mixture of attentive experts: each expert omits a set of `num_omitted_heads` of the
// `num_heads` heads. The sets are in lexicographic order: with `num_omitted_heads` = 2, {0, 1}, {0, 2}, …, {h-2, h-1}.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace mh::attention {

// Returns the number of experts, num_heads! / (num_omitted_heads! (num_heads - num_omitted_heads)!), or the largest
// int64_t if the computation would overflow; 0 if `num_omitted_heads` is negative or above `num_heads`.
inline int64_t expert_count(int64_t num_heads, int64_t num_omitted_heads) {
  if (num_omitted_heads < 0 || num_omitted_heads > num_heads) return 0;
  const int64_t num_factors = std::min(num_omitted_heads, num_heads - num_omitted_heads);
  int64_t count = 1;
  for (int64_t i = 0; i < num_factors; ++i) {
    // count * (num_heads - i) overflows only if the result is at least 2^63 / num_factors, since the count increases
    // with i.
    if (count > std::numeric_limits<int64_t>::max() / (num_heads - i)) return std::numeric_limits<int64_t>::max();
    count = count * (num_heads - i) / (i + 1);
  }
  return count;
}

// Returns the omitted heads of each expert, in ascending order; an empty list if `num_omitted_heads` is negative or
// above `num_heads`.
inline std::vector<std::vector<int64_t>> omitted_heads_by_expert(int64_t num_heads, int64_t num_omitted_heads) {
  std::vector<std::vector<int64_t>> subsets;
  if (num_omitted_heads < 0 || num_omitted_heads > num_heads) return subsets;
  std::vector<int64_t> subset(static_cast<size_t>(num_omitted_heads));
  for (int64_t i = 0; i < num_omitted_heads; ++i) subset[static_cast<size_t>(i)] = i;
  for (;;) {
    subsets.push_back(subset);
    // Increments the last element that is below its maximum, and sets the elements after it to the following heads.
    int64_t i = num_omitted_heads - 1;
    while (i >= 0 && subset[static_cast<size_t>(i)] == num_heads - num_omitted_heads + i) --i;
    if (i < 0) return subsets;
    for (int64_t head = subset[static_cast<size_t>(i)] + 1; i < num_omitted_heads; ++i)
      subset[static_cast<size_t>(i)] = head++;
  }
}

}  // namespace mh::attention
