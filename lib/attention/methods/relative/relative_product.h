// Logits that know the distance of query and key, on the composed path.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/causal_product.h"

namespace mh::attention {

// How many rows of r relative_product() reads: distances from T - 1 downwards.
int64_t distances_needed(int64_t queries, int64_t keys, CausalOffset offset);

// A[t, s] = x[t] · k[s] + y[t] · r[T - 1 - t + s]; x (B, h, T, dk), k (B, h, S, dk), y (B, h, T, c), r (h, D, c) or,
// for all heads, (1, D, c), by descending distance: row i is the distance of query T - 1 - i and key 0 -> (B, h, T, S).
// Entries that the offset hides are finite numbers; a later mask must give them a gradient of exactly 0.
at::Tensor relative_product(const at::Tensor& x, const at::Tensor& k, const at::Tensor& y, const at::Tensor& r,
                            CausalOffset offset);

}  // namespace mh::attention
