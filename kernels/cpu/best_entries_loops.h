// The first two of the three passes of best_entries() over the logits of a row.
#pragma once

#include "cpu/simd.h"

namespace mh::kernels {

constexpr int64_t kBlockEntries = 64;  // logits of a block; the third pass skips blocks with a small maximum

// The passes over the whole blocks of a row x (num_blocks, kBlockEntries), compiled for one instruction set
// (cpu/simd.h).
template <SimdLevel>
struct BestEntriesLoops {
  // Computes maxima (num_blocks), the maximum of each block.
  static void block_maxima(const float* x, int64_t num_blocks, float* maxima);
  // Returns Σ exp(x - maximum) over all blocks, summed in fp32 within groups of 16 blocks and in fp64 across groups.
  static double exponential_sum(const float* x, int64_t num_blocks, float maximum);
};

}  // namespace mh::kernels
