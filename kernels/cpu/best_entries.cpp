// Selects the largest entries of a row and computes its log-sum-exp, with the loops of the dispatched instruction set.
#include "cpu/best_entries.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "cpu/best_entries_loops.h"

namespace mh::kernels {

namespace {

constexpr int64_t block_size = kBlockEntries;

// Returns a bound below each of the `count` largest entries of a row, from `maxima`, the maxima of the blocks of the
// row. The bound is the next float below the `count`-th largest maximum: `count` blocks have an entry above it. -inf if
// `count` is 0 or exceeds the number of maxima.
float lower_bound_of_largest(const std::vector<float>& maxima, size_t count) {
  if (count == 0 || count > maxima.size()) return -INFINITY;
  thread_local std::vector<float> maxima_copy;
  maxima_copy = maxima;
  const auto last = maxima_copy.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(maxima_copy.begin(), last, maxima_copy.end(), std::greater<>());
  return std::nextafter(*last, -INFINITY);
}

}  // namespace

int64_t best_entries(std::span<const float> logits, std::span<const int32_t> excluded_indices, std::span<Entry> best,
                     double* lse) {
  const auto n = static_cast<int64_t>(logits.size()), num_blocks = n / block_size, tail_begin = num_blocks * block_size;
  const float* x = logits.data();
  thread_local std::vector<float> maxima;
  maxima.resize(static_cast<size_t>(num_blocks) + 1);
  dispatch_simd_level(
      [&](auto simd_level) { BestEntriesLoops<simd_level>::block_maxima(x, num_blocks, maxima.data()); });
  float tail_max = -INFINITY;  // maximum of the entries past the last whole block
  for (int64_t i = tail_begin; i < n; ++i) tail_max = std::max(tail_max, x[i]);
  maxima[static_cast<size_t>(num_blocks)] = tail_max;
  const float maximum = *std::max_element(maxima.begin(), maxima.end());

  double sum = dispatch_simd_level(
      [&](auto simd_level) { return BestEntriesLoops<simd_level>::exponential_sum(x, num_blocks, maximum); });
  for (int64_t i = tail_begin; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - maximum);
  *lse = std::log(sum) + maximum;

  size_t num_best = 0;
  // Candidates are the entries above lower_bound. If a logit is NaN, which is unordered, the maxima give no bound.
  float lower_bound =
      std::isnan(*lse) ? -INFINITY : lower_bound_of_largest(maxima, best.size() + excluded_indices.size());
  for (int64_t b = 0; b <= num_blocks && !best.empty(); ++b) {
    if (!(maxima[static_cast<size_t>(b)] > lower_bound)) continue;
    for (int64_t i = b * block_size; i < std::min(n, (b + 1) * block_size); ++i) {
      if (!(x[i] > lower_bound)) continue;
      const auto index = static_cast<int32_t>(i);
      if (std::find(excluded_indices.begin(), excluded_indices.end(), index) != excluded_indices.end()) continue;
      if (num_best < best.size()) ++num_best;
      size_t slot = num_best - 1;
      for (; slot > 0 && best[slot - 1].logit < x[i]; --slot) best[slot] = best[slot - 1];
      best[slot] = {x[i], index};
      if (num_best == best.size()) lower_bound = std::max(lower_bound, best.back().logit);
    }
  }
  return static_cast<int64_t>(num_best);
}

}  // namespace mh::kernels
