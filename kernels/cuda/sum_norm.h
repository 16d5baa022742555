// Sums and norms (sum_norm_plan.h) on a GPU. All pointers are to device memory.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// The widest rows: one fits into the shared memory that every GPU gives a block.
constexpr int64_t kMostSumNorm = 12000;

}  // namespace mh::kernels
