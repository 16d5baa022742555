// Residual sum, dropout and layer norm (sum_norm_plan.h) on a GPU. The tensors are in GPU memory.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// Maximum size of a row: a row of this size fits in the shared memory that every supported GPU has for a block.
constexpr int64_t kMaxSumNormWidth = 12000;

}  // namespace mh::kernels
