// Computes residual sum, dropout and norm of rows and their gradients, and instantiates SumNormLoops for one
// instruction set, for y in fp32 and in bf16. The loops of a layer norm also serve the RMS norm, with 0 in place of the
// mean.
#include "cpu/sum_norm.h"

#include <cmath>

#include "cpu/dropout_mask.h"
#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// Returns x + offset, or null if x is null.
template <class T>
MH_INLINE T* offset_or_null(T* x, int64_t offset) {
  return x != nullptr ? x + offset : nullptr;
}

// Returns the dropout mask (size) of row r, whose elements are 1 / (1 - p) or 0; null without dropout. scratch:
// sum_norm_scratch_floats() floats.
MH_INLINE const float* dropout_mask_row(const SumNormParams& params, int64_t r, float* scratch) {
  if (params.dropout == nullptr) return nullptr;
  float* dropout_mask = scratch + kDropoutGroupSize;
  dropout_mask_range(*params.dropout, params.dropout_begin(r), params.size, dropout_mask);
  return dropout_mask;
}

}  // namespace

template <SimdLevel L, class Y>
void SumNormLoops<L, Y>::forward(const SumNormParams& params, const SumNormTensors& tensors, int64_t first,
                                 int64_t rows, float* scratch) {
  const int64_t size = params.size;
  const float *x = tensors.x + first * size, *bias = params.bias;
  const Y* y = static_cast<const Y*>(tensors.y) + first * size;
  float *s = offset_or_null(tensors.sum, first * size), *n = offset_or_null(tensors.norm, first * size);
  float *mean = offset_or_null(tensors.mean, first), *rstd = offset_or_null(tensors.rstd, first);
  for (int64_t r = 0; r < rows; ++r, x += size, y += size) {
    const float* dropout_mask = dropout_mask_row(params, first + r, scratch);
    float* sum_row = s != nullptr ? s + r * size : n + r * size;
    Floats sum{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, b;
      load_partial(x + i, size - i, a);
      load_partial(y + i, size - i, b);
      if (dropout_mask != nullptr) {
        Floats factors;
        load_partial(dropout_mask + i, size - i, factors);
        b = apply_dropout_mask(factors, b);
      }
      a = a + b;
      sum += a;
      store_partial(a, size - i, sum_row + i);
    }
    if (n == nullptr) continue;
    const float row_mean = params.type == NormType::rms ? 0 : sum_of(sum) / static_cast<float>(size);
    Floats squares{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a;
      load_partial(sum_row + i, size - i, a);
      a = a - row_mean;
      replace_tail(size - i, 0, a);
      squares += a * a;
    }
    const float inv_stddev = 1 / std::sqrt(sum_of(squares) / static_cast<float>(size) + params.epsilon);
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, w, b;
      load_partial(sum_row + i, size - i, a);
      load_partial(params.weight + i, size - i, w);
      a = (a - row_mean) * inv_stddev * w;
      if (bias != nullptr) {
        load_partial(bias + i, size - i, b);
        a = a + b;
      }
      store_partial(a, size - i, n + r * size + i);
    }
    if (mean != nullptr) mean[r] = row_mean;
    if (rstd != nullptr) rstd[r] = inv_stddev;
  }
}

// With s' = (s - mean) * rstd and g = weight * dn, the gradient of the layer norm with respect to the sum s is
// rstd * (g - mean(g) - s' * mean(g s')); means are over the elements of a row. The gradient of the RMS norm has 0 in
// place of the means of s and g.
template <SimdLevel L, class Y>
void SumNormLoops<L, Y>::backward(const SumNormParams& params, const SumNormTensors& tensors, int64_t first,
                                  int64_t rows, float* scratch) {
  const int64_t size = params.size;
  const float *dn = offset_or_null(tensors.dnorm, first * size), *ds = offset_or_null(tensors.dsum, first * size);
  const float *s = offset_or_null(tensors.sum, first * size), *mean = offset_or_null(tensors.mean, first),
              *rstd = offset_or_null(tensors.rstd, first);
  float* dx = tensors.dx + first * size;
  Y* dy = static_cast<Y*>(tensors.dy) + first * size;
  const int64_t chunk_offset = tensors.chunk_rows > 0 ? first / tensors.chunk_rows * size : 0;
  float *dweight = offset_or_null(tensors.dweight, chunk_offset), *dbias = offset_or_null(tensors.dbias, chunk_offset);
  for (int64_t r = 0; r < rows; ++r, dx += size, dy += size) {
    const float* dropout_mask = dropout_mask_row(params, first + r, scratch);
    float mean_g = 0, mean_gs = 0;  // mean(g), mean(g s')
    const float row_mean = dn != nullptr && params.type == NormType::layer ? mean[r] : 0;
    if (dn != nullptr) {
      Floats g_sum{}, gs_sum{};
      for (int64_t i = 0; i < size; i += lanes) {
        Floats a, g, w, sum;
        load_partial(s + r * size + i, size - i, a);
        load_partial(dn + r * size + i, size - i, g);
        a = (a - row_mean) * rstd[r];
        if (dbias != nullptr) {
          load_partial(dbias + i, size - i, sum);
          sum += g;
          store_partial(sum, size - i, dbias + i);
        }
        load_partial(dweight + i, size - i, sum);
        sum += g * a;
        store_partial(sum, size - i, dweight + i);
        load_partial(params.weight + i, size - i, w);
        g = g * w;
        g_sum += g;
        gs_sum += g * a;
      }
      if (params.type == NormType::layer) mean_g = sum_of(g_sum) / static_cast<float>(size);
      mean_gs = sum_of(gs_sum) / static_cast<float>(size);
    }
    for (int64_t i = 0; i < size; i += lanes) {
      Floats d{};
      if (ds != nullptr) load_partial(ds + r * size + i, size - i, d);
      if (dn != nullptr) {
        Floats a, g, w;
        load_partial(s + r * size + i, size - i, a);
        load_partial(dn + r * size + i, size - i, g);
        load_partial(params.weight + i, size - i, w);
        a = (a - row_mean) * rstd[r];
        d += (g * w - mean_g - a * mean_gs) * rstd[r];
      }
      store_partial(d, size - i, dx + i);
      if (dropout_mask != nullptr) {
        Floats factors;
        load_partial(dropout_mask + i, size - i, factors);
        d = apply_dropout_mask(factors, d);
      }
      store_partial(d, size - i, dy + i);
    }
  }
}

template struct SumNormLoops<kSimdLevel, float>;
template struct SumNormLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
