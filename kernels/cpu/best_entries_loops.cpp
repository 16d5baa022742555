// Computes the maxima of blocks and the sum of exponentials of a row, and instantiates BestEntriesLoops for one
// instruction set.
#include "cpu/best_entries_loops.h"

#include <algorithm>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

constexpr int64_t block_size = kBlockEntries;
static_assert(block_size == 4 * lanes);

}  // namespace

template <SimdLevel L>
void BestEntriesLoops<L>::block_maxima(const float* x, int64_t num_blocks, float* maxima) {
  for (int64_t b = 0; b < num_blocks; ++b) {
    Floats max_lanes;
    load(x + b * block_size, max_lanes);
    for (int64_t i = lanes; i < block_size; i += lanes) {
      Floats v;
      load(x + b * block_size + i, v);
      max_lanes = select(v > max_lanes, v, max_lanes);
    }
    maxima[b] = max_of(max_lanes);
  }
}

template <SimdLevel L>
double BestEntriesLoops<L>::exponential_sum(const float* x, int64_t num_blocks, float maximum) {
  double sum = 0;
  for (int64_t b = 0; b < num_blocks;) {
    const int64_t end = std::min(num_blocks, b + 16);
    Floats block_sum{};
    for (; b < end; ++b)
      for (int64_t i = 0; i < block_size; i += lanes) {
        Floats v;
        load(x + b * block_size + i, v);
        v = v - maximum;
        exp_nonpositive(v);
        block_sum += v;
      }
    sum += sum_of(block_sum);
  }
  return sum;
}

template struct BestEntriesLoops<kSimdLevel>;

}  // namespace mh::kernels
