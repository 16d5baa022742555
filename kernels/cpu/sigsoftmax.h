// Transforms logits so that their softmax is Sigsoftmax, for the fused kernels on a CPU.
#pragma once

#include <cstdint>

#include "cpu/vector.h"

namespace mh::kernels {

// Replaces the logits a in s (count) by 2a - softplus(a), whose softmax is the Sigsoftmax of a. slope (count): receives
// the derivative, 2 - σ(a); null: not computed. `count` is rounded up to a multiple of 16.
MH_INLINE void sigsoftmax_logits(float* s, int64_t count, float* slope) {
  for (int64_t i = 0; i < count; i += lanes) {
    Floats a;
    load(s + i, a);
    Floats z = select(a < 0.0F, a, -a);  // -|a|
    exp_nonpositive(z);
    // log(1 + z) = 2 artanh(w) for w = z / (2 + z), by the power series of artanh(w) / w in w² <= 1/9.
    const Floats w = z / (z + 2.0F), w2 = w * w;
    Floats series = w2 * (1.0F / 15) + 1.0F / 13;
    series = series * w2 + 1.0F / 11;
    series = series * w2 + 1.0F / 9;
    series = series * w2 + 1.0F / 7;
    series = series * w2 + 1.0F / 5;
    series = series * w2 + 1.0F / 3;
    series = series * w2 + 1.0F;
    const Floats positive_part = select(a < 0.0F, Floats{}, a);
    const Floats t = 2.0F * a - (positive_part + 2.0F * w * series);
    store(t, s + i);
    if (slope == nullptr) continue;
    const Floats sigmoid = select(a < 0.0F, z, Floats{} + 1.0F) / (z + 1.0F), derivative = 2.0F - sigmoid;
    store(derivative, slope + i);
  }
}

}  // namespace mh::kernels
