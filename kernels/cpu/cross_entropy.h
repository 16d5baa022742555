// Rows of logits to losses and gradients, in place and in two passes over a row that stays in cache.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct CrossEntropyPlan {
  int64_t columns;     // entries that take part
  int64_t stride;      // floats from one row to the next, at least `columns`
  float smoothing;     // label smoothing e
};

// For each row r with target[r] >= 0: nll[r] = log-sum-exp - logit of the target, and mean[r] = log-sum-exp - mean of
// all logits (nats). Rows with a negative target get 0 in both. With `gradient` the logits are replaced by the gradient of
// (1 - e) * nll + e * mean; entries beyond `columns`, and rows without a target, become 0.
void cross_entropy_rows(const CrossEntropyPlan& plan, int64_t rows, const int64_t* target, float* logits, float* nll,
                        float* mean, bool gradient);

}  // namespace mh::kernels
