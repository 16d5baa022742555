// Skip-Retain training ("Skip Cross-Head Transformer-XL"). Phase 1: at each update layer i (of N, from 1) is skipped
// with probability p(i); a skipped layer is the identity, and its memory is not advanced. Phase 2: ordinary training
// from the best checkpoint of phase 1, which ends at a given update or, earlier, with train.validation.patience.
#pragma once

#include <cstdint>

namespace mh::train {

enum class SkipSchedule { linear, all, not_first, not_last, not_ends };

// Equations 1 to 5 of the paper, for layer i = `layer` + 1 of N = `layers`:
//   linear    (1)  .5 (i - 1) / N, and 0 for i = N
//   all       (2)  rate
//   not-first (3)  rate but for i = 1;   not-last (4)  rate but for i = N;   not-ends (5)  rate but for both
double skip_probability(SkipSchedule schedule, double rate, int64_t layer, int64_t layers);

}  // namespace mh::train
