#include "cpu/head_mix.h"

#include <algorithm>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// Heads lie a power of two apart and would push each other out of the cache, so a stretch of every head is copied side
// by side first: 8 + 8 heads take 8 KB.
constexpr int64_t width = 128;

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

// `rows` outputs from i on: y_i = Σ_j m[j * mj + i * mi] x_j.
template <int rows>
MH_INLINE void mix_rows(int64_t in, const float* m, int64_t mj, int64_t mi, const float* x, int64_t count, float* y) {
  for (int64_t s = 0; s < count; s += lanes) {
    Floats sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = Floats{};
    for (int64_t j = 0; j < in; ++j) {
      Floats v;
      load(x + j * width + s, v);
      for (int r = 0; r < rows; ++r) sum[r] += m[j * mj + r * mi] * v;
    }
    for (int r = 0; r < rows; ++r) store(sum[r], y + r * width + s);
  }
}

MH_INLINE void mix(int64_t in, int64_t out, const float* m, int64_t mj, int64_t mi, const float* x, int64_t count,
                   float* y) {
  int64_t i = 0;
  for (; i + 4 <= out; i += 4) mix_rows<4>(in, m + i * mi, mj, mi, x, count, y + i * width);
  for (; i < out; ++i) mix_rows<1>(in, m + i * mi, mj, mi, x, count, y + i * width);
}

// dm[j][i][lane] += x_j dy_i for `rows` heads j and `columns` heads i.
template <int rows, int columns>
MH_INLINE void outer(const float* x, const float* dy, int64_t count, float* dm, int64_t out) {
  Floats sum[rows][columns];
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) load(dm + (r * out + c) * lanes, sum[r][c]);
  for (int64_t s = 0; s < count; s += lanes) {
    Floats right[columns];
    for (int c = 0; c < columns; ++c) load(dy + c * width + s, right[c]);
    for (int r = 0; r < rows; ++r) {
      Floats left;
      load(x + r * width + s, left);
      for (int c = 0; c < columns; ++c) sum[r][c] += left * right[c];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) store(sum[r][c], dm + (r * out + c) * lanes);
}

template <class T>
MH_INLINE void forward(const HeadMix& how, const float* m, const T* x, T* y, float* scratch) {
  float *from = scratch, *to = scratch + how.in * width;
  for (int64_t s = 0; s < how.count; s += width) {
    const int64_t n = std::min(width, how.count - s);
    gather(x, how.x_stride, how.in, s, n, from);
    mix(how.in, how.out, m, how.out, 1, from, n, to);
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
      int64_t j = 0;
      for (; j + 4 <= how.in; j += 4) {
        int64_t i = 0;
        for (; i + 2 <= how.out; i += 2)
          outer<4, 2>(left + j * width, right + i * width, n, dm + (j * how.out + i) * lanes, how.out);
        for (; i < how.out; ++i)
          outer<4, 1>(left + j * width, right + i * width, n, dm + (j * how.out + i) * lanes, how.out);
      }
      for (; j < how.in; ++j)
        for (int64_t i = 0; i < how.out; ++i)
          outer<1, 1>(left + j * width, right + i * width, n, dm + (j * how.out + i) * lanes, how.out);
    }
    if (dx != nullptr) {
      mix(how.out, how.in, m, 1, how.out, right, n, left);
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
