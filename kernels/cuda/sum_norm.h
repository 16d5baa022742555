// Residual sum, dropout and layer norm (sum_norm_plan.h) on a GPU. The tensors are in GPU memory.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// Maximum number of elements of a row. The forward pass takes 48048 bytes of shared memory for such a row, and every
// GPU has 48 KiB for a block.
constexpr int64_t kMaxSumNormWidth = 12000;

}  // namespace mh::kernels
