#include "search/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace mh::search {

int32_t sample_token(std::span<const float> logits, double temperature, int64_t top_k, RandomSequence& random) {
  const float* x = logits.data();
  const size_t n = logits.size();
  if (n == 0) throw std::logic_error("sample_token(): expected at least one logit; found none");
  if (temperature == 0) return static_cast<int32_t>(std::max_element(x, x + n) - x);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const size_t num_candidates = top_k > 0 ? std::min(n, static_cast<size_t>(top_k)) : n;
  // Equal logits are ordered by token, so that the result does not depend on the sorting algorithm.
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(num_candidates), order.end(),
                    [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  std::vector<double> cumulative_weights(num_candidates);
  double sum = 0;
  for (size_t i = 0; i < num_candidates; ++i) {
    sum += std::exp((static_cast<double>(x[order[i]]) - static_cast<double>(x[order[0]])) / temperature);
    cumulative_weights[i] = sum;
  }
  auto it = std::upper_bound(cumulative_weights.begin(), cumulative_weights.end(), random.uniform() * sum);
  return order[std::min(static_cast<size_t>(it - cumulative_weights.begin()), num_candidates - 1)];
}

}  // namespace mh::search
