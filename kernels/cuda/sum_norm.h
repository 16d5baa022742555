// Residual sums and layer norms (sum_norm_plan.h) on a GPU. All pointers are to device memory.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// Maximum width of rows: a row fits into the shared memory that every GPU has for a block.
constexpr int64_t kMaxSumNormWidth = 12000;

}  // namespace mh::kernels
