// The maximum row size of the GPU kernels for residual sum and norm (cuda/sum_norm_rows.h).
#pragma once

#include "sum_norm_params.h"

namespace mh::kernels {

// Maximum number of elements of a row. The forward pass takes 48048 bytes of shared memory for such a row, and every
// GPU allows at least 48 KiB for a block.
constexpr int64_t kMaxSumNormWidth = 12000;

}  // namespace mh::kernels
