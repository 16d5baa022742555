#include "cpu/head_mix.h"

#include <algorithm>

#include "cpu/head_mix_chunk.h"

namespace mh::kernels {

namespace {

// A stretch of every head is copied side by side first.
constexpr int64_t width = kMixWidth;

template <class T>
MH_INLINE void gather(const T* from, int64_t stride, int64_t heads, int64_t first, int64_t count, float* to) {
  for (int64_t j = 0; j < heads; ++j) {
    const T* row = from + j * stride + first;
    float* out = to + j * width;
    int64_t s = 0;
    for (; s + lanes <= count; s += lanes) {
      Floats v;
      load(row + s, v);
      store(v, out + s);
    }
    if (s == count) continue;
    for (; s < count; ++s) out[s] = to_float(row[s]);
    for (; s % lanes != 0; ++s) out[s] = 0;
  }
}

template <class T>
MH_INLINE void scatter(const float* from, int64_t heads, int64_t first, int64_t count, T* to, int64_t stride) {
  for (int64_t i = 0; i < heads; ++i) {
    T* row = to + i * stride + first;
    const float* in = from + i * width;
    int64_t s = 0;
    for (; s + lanes <= count; s += lanes) {
      Floats v;
      load(in + s, v);
      store(v, row + s);
    }
    for (; s < count; ++s) from_float(in[s], row[s]);
  }
}

template <class T>
MH_INLINE void forward(const HeadMix& how, const float* m, const T* x, T* y, float* scratch) {
  float *from = scratch, *to = scratch + how.in * width;
  for (int64_t s = 0; s < how.count; s += width) {
    const int64_t n = std::min(width, how.count - s);
    gather(x, how.x_stride, how.in, s, n, from);
    mix_chunk(how.in, how.out, m, how.out, 1, from, n, to);
    scatter(to, how.out, s, n, y, how.y_stride);
  }
}

template <class T>
MH_INLINE void backward(const HeadMix& how, const float* m, const T* x, const T* dy, T* dx, int64_t dx_stride,
                        float* dm, float* scratch) {
  float *left = scratch, *right = scratch + how.in * width;
  for (int64_t s = 0; s < how.count; s += width) {
    const int64_t n = std::min(width, how.count - s);
    gather(dy, how.y_stride, how.out, s, n, right);
    if (dm != nullptr) {
      gather(x, how.x_stride, how.in, s, n, left);
      outer_chunk(how.in, how.out, left, right, n, dm);
    }
    if (dx != nullptr) {
      mix_chunk(how.out, how.in, m, 1, how.out, right, n, left);
      scatter(left, how.in, s, n, dx, dx_stride);
    }
  }
}

MH_VECTOR_LOOP
void forward_f32(const HeadMix& how, const float* m, const float* x, float* y, float* scratch) {
  forward(how, m, x, y, scratch);
}
MH_VECTOR_LOOP
void forward_bf16(const HeadMix& how, const float* m, const uint16_t* x, uint16_t* y, float* scratch) {
  forward(how, m, x, y, scratch);
}
MH_VECTOR_LOOP
void backward_f32(const HeadMix& how, const float* m, const float* x, const float* dy, float* dx, int64_t dx_stride,
                  float* dm, float* scratch) {
  backward(how, m, x, dy, dx, dx_stride, dm, scratch);
}
MH_VECTOR_LOOP
void backward_bf16(const HeadMix& how, const float* m, const uint16_t* x, const uint16_t* dy, uint16_t* dx,
                   int64_t dx_stride, float* dm, float* scratch) {
  backward(how, m, x, dy, dx, dx_stride, dm, scratch);
}

}  // namespace

int64_t head_mix_scratch(int64_t in, int64_t out) { return (in + out) * width; }

template <>
void mix_heads(const HeadMix& how, const float* m, const float* x, float* y, float* scratch) {
  forward_f32(how, m, x, y, scratch);
}
template <>
void mix_heads(const HeadMix& how, const float* m, const uint16_t* x, uint16_t* y, float* scratch) {
  forward_bf16(how, m, x, y, scratch);
}
template <>
void mix_heads_backward(const HeadMix& how, const float* m, const float* x, const float* dy, float* dx,
                        int64_t dx_stride, float* dm, float* scratch) {
  backward_f32(how, m, x, dy, dx, dx_stride, dm, scratch);
}
template <>
void mix_heads_backward(const HeadMix& how, const float* m, const uint16_t* x, const uint16_t* dy, uint16_t* dx,
                        int64_t dx_stride, float* dm, float* scratch) {
  backward_bf16(how, m, x, dy, dx, dx_stride, dm, scratch);
}

}  // namespace mh::kernels
