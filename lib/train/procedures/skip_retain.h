// The procedure "skip-retain" ("Skip Cross-Head Transformer-XL"). In phase 1, each update skips layer i (of N, counted
// from 1) with probability p(i); a skipped layer is the identity function and leaves its memory unchanged. In phase 2,
// training continues without skips from the best weights of phase 1. Phase 1 ends at the length `until`, or earlier
// when train.validation.patience is exhausted; with until = "0u" phase 1 never ends.
#pragma once

#include <cstdint>
#include <vector>

namespace mh::train {

enum class SkipSchedule { linear, all, not_first, not_last, not_ends };

// Returns the probability p(i) that an update skips layer i of N (equations 1 to 5 of the paper), with i = `layer` + 1
// and N = `num_layers`:
//   linear    (1)  0.5 (i - 1) / N for i < N, and 0 for i = N
//   all       (2)  rate
//   not-first (3)  rate, and 0 for i = 1
//   not-last  (4)  rate, and 0 for i = N
//   not-ends  (5)  rate, and 0 for i = 1 and i = N
double skip_probability(SkipSchedule schedule, double rate, int64_t layer, int64_t num_layers);

// Returns the expected context of the paper in tokens, 2 M Σ p(i) over all layers, for a memory of `memory_length` = M
// tokens. The paper assumes that a skip doubles the age of a memory, and sums over the layers, so this number is not
// the distance up to which a query attends; mean_memory_age() is exact.
double expected_context(const std::vector<double>& skip_probabilities, int64_t memory_length);

// Returns the mean age, in updates, of the memory of a layer that each update skips with probability p:
// Σ k p^(k - 1) (1 - p) = 1 / (1 - p). A layer that is never skipped has the age 1.
double mean_memory_age(double skip_probability);

}  // namespace mh::train
