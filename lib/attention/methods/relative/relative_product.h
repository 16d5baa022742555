// Logits with relative positions, for the composed path, with Tq queries, Tk keys and D distances.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/causal_product.h"

namespace mh::attention {

// Returns the number of rows of r, from row 0, that relative_product() reads; at least 1. Row 0 is the embedding of the
// distance between the last query and key 0.
int64_t num_distances(int64_t num_queries, int64_t num_keys, CausalOffset offset);

// Returns logits A (B, h, Tq, Tk), A[t, s] = x[t] · k[s] + y[t] · r[Tq - 1 - t + s], for x (B, h, Tq, dk), k (B, h, Tk,
// dk), y (B, h, Tq, c) and r (h, D, c), or (1, D, c) for all heads. The rows of r are in descending order of distance:
// row i is the embedding of the distance between query Tq - 1 - i and key 0. Entries s > t + *offset are finite but
// unspecified; a later mask must give them a gradient of exactly 0.
at::Tensor relative_product(const at::Tensor& x, const at::Tensor& k, const at::Tensor& y, const at::Tensor& r,
                            CausalOffset offset);

}  // namespace mh::attention
