// Dropout masks for many consecutive elements of a random stream at a time (dropout_params.h). A mask holds for each
// element the factor scale = 1 / (1 - p), or 0 if the element is dropped.
#pragma once

#include "cpu/vector.h"
#include "dropout_params.h"

namespace mh::kernels {

constexpr int kDropoutGroupSize =
    4 * lanes;  // elements of a group: the four random words of each of 16 Philox counters

using Longs = Vector<uint64_t, lanes / 2>;

// Computes the low and high 32-bit halves of the 64-bit product `factor` * x of each lane. The even and the odd lanes
// are multiplied separately, since a 64-bit lane holds one product.
MH_INLINE void multiply(uint64_t factor, const Words& x, Words& low, Words& high) {
  constexpr uint64_t low_mask = 0xFFFFFFFF;
  Longs pairs, result;
  copy_bits(x, pairs);
  Longs even = (pairs & low_mask) * factor, odd = (pairs >> 32) * factor;
  result = (even & low_mask) | (odd << 32);
  copy_bits(result, low);
  result = (even >> 32) | (odd & ~low_mask);
  copy_bits(result, high);
}

// Computes `dropout_mask` (kDropoutGroupSize) of elements 4 * block … 4 * block + kDropoutGroupSize - 1 of the random
// stream, which take the random words of 16 Philox counters, from counter `block` on. `block` is a multiple of 16, so
// that the lower halves of the counters do not overflow.
MH_INLINE void dropout_mask_group(const DropoutParams& params, uint64_t block, float* dropout_mask) {
  Ints lane;
  set_lane_numbers(lane);
  Words c0;
  copy_bits(lane, c0);
  c0 = c0 + static_cast<uint32_t>(block);
  Words c1 = static_cast<uint32_t>(block >> 32) - Words{}, c2 = params.site - Words{}, c3 = params.update - Words{};
  uint32_t k0 = params.key[0], k1 = params.key[1];
  for (int round = 0; round < 10; ++round) {
    Words a_low, a_high, b_low, b_high;
    multiply(0xD2511F53, c0, a_low, a_high);
    multiply(0xCD9E8D57, c2, b_low, b_high);
    c0 = b_high ^ c1 ^ k0;
    c1 = b_low;
    c2 = a_high ^ c3 ^ k1;
    c3 = a_low;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  // Transposes four vectors, each of which has one word of all 16 counters, so that the words of a counter are
  // adjacent.
  const Words ab0 = interleave_low(c0, c1), ab1 = interleave_high(c0, c1);
  const Words cd0 = interleave_low(c2, c3), cd1 = interleave_high(c2, c3);
  const Words words[4] = {interleave_pairs_low(ab0, cd0), interleave_pairs_high(ab0, cd0),
                          interleave_pairs_low(ab1, cd1), interleave_pairs_high(ab1, cd1)};
  Floats scale;
  fill(scale, params.scale);
  for (int i = 0; i < 4; ++i) {
    const Floats factors = select((words[i] >> 8) >= params.threshold, scale, Floats{});
    store(factors, dropout_mask + i * lanes);
  }
}

// Return x times its dropout factor `dropout_mask` (scale or 0). A dropped infinity or NaN becomes 0.
MH_INLINE Floats apply_dropout_mask(const Floats& dropout_mask, const Floats& x) {
  return select(dropout_mask == 0.0F, Floats{}, x * dropout_mask);
}
MH_INLINE float apply_dropout_mask(float dropout_mask, float x) {
  return dropout_mask == 0.0F ? 0.0F : x * dropout_mask;
}

// Computes dropout_mask[i], the factor of element stream_offset + i of the random stream, for i < count. Writes whole
// groups of kDropoutGroupSize elements, so it may overwrite up to kDropoutGroupSize - 1 floats before dropout_mask[0]
// and after dropout_mask[count - 1].
MH_INLINE void dropout_mask_range(const DropoutParams& params, uint64_t stream_offset, int64_t count,
                                  float* dropout_mask) {
  const auto group_offset = static_cast<int64_t>(stream_offset % kDropoutGroupSize);
  for (int64_t i = -group_offset; i < count; i += kDropoutGroupSize)
    dropout_mask_group(params, (stream_offset + static_cast<uint64_t>(i)) / 4, dropout_mask + i);
}

}  // namespace mh::kernels
