// The passes of best_entries over a row.
#pragma once

#include "cpu/simd.h"

namespace mh::kernels {

constexpr int64_t kEntriesOfBlock = 64;  // entries that share one maximum

template <Level>
struct BestEntriesLoops {
  // Computes the maxima of whole blocks.
  static void maxima(const float* x, int64_t blocks, float* maxima);
  // Returns Σ exp(x - maximum) over whole blocks, in fp32 within 16 of them.
  static double exponentials(const float* x, int64_t blocks, float maximum);
};

}  // namespace mh::kernels
