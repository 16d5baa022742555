// Linear maps across heads: y_i = Σ_j m[j, i] x_j, at one position of all heads at a time.
#pragma once

#include <cstdint>

namespace mh::kernels {

// One position: head j of x starts at x + j * x_stride and holds `count` numbers, and head i of y likewise.
struct HeadMix {
  int64_t in, out;  // heads of x and of y
  int64_t x_stride, y_stride;
  int64_t count;
};

int64_t head_mix_scratch(int64_t in, int64_t out);  // floats, for either function

// m (in, out). y may be x, where the strides are the same. T: float, or uint16_t for bf16.
template <class T>
void mix_heads(const HeadMix& how, const float* m, const T* x, T* y, float* scratch);

// The gradients at the same position: dx_j = Σ_i m[j, i] dy_i, with x's stride or, where dx is dy, y's; and
// dm[j, i] += Σ_s x_j[s] dy_i[s], as 16 partial sums each: dm (in, out, 16). Either may be null.
template <class T>
void mix_heads_backward(const HeadMix& how, const float* m, const T* x, const T* dy, T* dx, int64_t dx_stride,
                        float* dm, float* scratch);

}  // namespace mh::kernels
