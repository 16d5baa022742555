// Mixes heads chunk by chunk, and instantiates HeadMixLoops for one instruction set, for fp32 and bf16 tensors.
#include "cpu/head_mix.h"

#include <algorithm>

#include "cpu/head_mix_chunk.h"

namespace mh::kernels {

namespace {

constexpr int64_t width = kMixWidth;

// Copies `count` elements of each head, from element `first` on, to `to` (heads, width), in fp32, and zeroes the
// elements of `to` from `count` to the next multiple of 16. Head j is at `from + j * stride`.
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

// Copies `from` (heads, width) to `count` elements of each head, from element `first` on, rounded to T. Head i is at
// `to + i * stride`.
template <class T>
MH_INLINE void scatter(const float* from, int64_t heads, int64_t first, int64_t count, T* to, int64_t stride) {
  for (int64_t i = 0; i < heads; ++i) {
    T* row = to + i * stride + first;
    const float* chunk_row = from + i * width;
    int64_t s = 0;
    for (; s + lanes <= count; s += lanes) {
      Floats v;
      load(chunk_row + s, v);
      store(v, row + s);
    }
    for (; s < count; ++s) from_float(chunk_row[s], row[s]);
  }
}

}  // namespace

template <SimdLevel L, class T>
void HeadMixLoops<L, T>::forward(const HeadMixParams& params, const float* m, const T* x, T* y, float* scratch) {
  float *x_chunk = scratch, *y_chunk = scratch + params.num_in_heads * width;
  for (int64_t s = 0; s < params.count; s += width) {
    const int64_t n = std::min(width, params.count - s);
    gather(x, params.x_stride, params.num_in_heads, s, n, x_chunk);
    mix_chunk(params.num_in_heads, params.num_out_heads, {m, 1, params.num_out_heads}, x_chunk, n, y_chunk);
    scatter(y_chunk, params.num_out_heads, s, n, y, params.y_stride);
  }
}

template <SimdLevel L, class T>
void HeadMixLoops<L, T>::backward(const HeadMixParams& params, const float* m, const HeadMixGradients<T>& g,
                                  float* scratch) {
  float *x_chunk = scratch, *dy_chunk = scratch + params.num_in_heads * width;
  for (int64_t s = 0; s < params.count; s += width) {
    const int64_t n = std::min(width, params.count - s);
    gather(g.dy, params.y_stride, params.num_out_heads, s, n, dy_chunk);
    if (g.dm != nullptr) {
      gather(g.x, params.x_stride, params.num_in_heads, s, n, x_chunk);
      outer_product_chunk(params.num_in_heads, params.num_out_heads, x_chunk, dy_chunk, n, g.dm);
    }
    if (g.dx != nullptr) {
      mix_chunk(params.num_out_heads, params.num_in_heads, {m, params.num_out_heads, 1}, dy_chunk, n, x_chunk);
      scatter(x_chunk, params.num_in_heads, s, n, g.dx, g.dx_stride);
    }
  }
}

template struct HeadMixLoops<kSimdLevel, float>;
template struct HeadMixLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
