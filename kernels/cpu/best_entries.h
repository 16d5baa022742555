// The largest logits of a row and the logarithm of its sum of exponentials: what a search looks at in each step. Two
// passes over the row, and a third over those few blocks that hold something large; nothing is sorted but what is
// given back, nothing copied.
#pragma once

#include <cstdint>
#include <span>

namespace mh::kernels {

struct Entry {
  float logit;
  int32_t index;
};

// Fills `best` with the largest of `logits`, falling, of equal ones the one with the smaller index first; those at
// `without` are no candidates. Returns how many there are: best.size(), or fewer where the row has fewer that are more
// than minus infinity. *log_sum: ln Σ exp over the whole row, NaN or infinite where a logit is no number.
int64_t best_entries(std::span<const float> logits, std::span<const int32_t> without, std::span<Entry> best,
                     double* log_sum);

}  // namespace mh::kernels
