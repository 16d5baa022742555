// The largest logits of a row and its log-sum-exp, for each step of a search. Two passes over the row, and a third over
// the few blocks with a large entry; only the results are sorted, and nothing is copied.
#pragma once

#include <cstdint>
#include <span>

namespace mh::kernels {

struct Entry {
  float logit;
  int32_t index;
};

// Fills `best` with the largest of `logits`, descending, the smaller index first among equal ones; those at `without`
// are no candidates. Returns how many: best.size(), or fewer if the row has fewer entries above minus infinity.
// *log_sum: ln Σ exp over the whole row, NaN or infinite if a logit is not finite.
int64_t best_entries(std::span<const float> logits, std::span<const int32_t> without, std::span<Entry> best,
                     double* log_sum);

}  // namespace mh::kernels
