#include "cpu/layer_norm.h"

#include <cmath>

#include "cpu/dropout_decisions.h"
#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// The first `n` numbers, at most 16; of what is behind them zeros are read and nothing is written.
template <class T>
MH_INLINE void load_some(const T* from, int64_t n, Floats& to) {
  if (n >= lanes) return load(from, to);
  T some[lanes] = {};
  std::memcpy(some, from, static_cast<size_t>(n) * sizeof(T));
  load(some, to);
}
template <class T>
MH_INLINE void store_some(const Floats& from, int64_t n, T* to) {
  if (n >= lanes) return store(from, to);
  T some[lanes];
  store(from, some);
  std::memcpy(to, some, static_cast<size_t>(n) * sizeof(T));
}

// What is kept of row r, where something is dropped.
MH_INLINE const float* decide_row(const SumNorm& how, int64_t r, float* scratch) {
  if (how.dropout == nullptr) return nullptr;
  float* keep = scratch + kDropoutGroup;
  decide_range(*how.dropout, how.dropout_first + static_cast<uint64_t>(r * how.size), how.size, keep);
  return keep;
}

template <class Y>
MH_INLINE void forward(const SumNorm& how, int64_t first, int64_t rows, const float* x, const Y* y, float* s, float* n,
                       float* mean, float* factor, float* scratch) {
  const int64_t size = how.size;
  for (int64_t r = 0; r < rows; ++r, x += size, y += size) {
    const float* keep = decide_row(how, first + r, scratch);
    float* sums = s != nullptr ? s + r * size : n + r * size;
    Floats sum{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, b;
      load_some(x + i, size - i, a);
      load_some(y + i, size - i, b);
      if (keep != nullptr) {
        Floats k;
        load_some(keep + i, size - i, k);
        b = kept(k, b);
      }
      a = a + b;
      sum += a;
      store_some(a, size - i, sums + i);
    }
    if (n == nullptr) continue;
    const float middle = sum_of(sum) / static_cast<float>(size);
    Floats squares{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a;
      load_some(sums + i, size - i, a);
      a = a - middle;
      if (size - i < lanes)
        for (int64_t j = size - i; j < lanes; ++j) a[j] = 0;
      squares += a * a;
    }
    const float by = 1 / std::sqrt(sum_of(squares) / static_cast<float>(size) + how.epsilon);
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, w, b;
      load_some(sums + i, size - i, a);
      load_some(how.weight + i, size - i, w);
      load_some(how.bias + i, size - i, b);
      a = (a - middle) * by * w + b;
      store_some(a, size - i, n + r * size + i);
    }
    if (mean != nullptr) mean[r] = middle, factor[r] = by;
  }
}

// With s' = (s - mean) * factor and g = weight * dn, the norm gives factor * (g - mean of g - s' * mean of g s').
template <class Y>
MH_INLINE void backward(const SumNorm& how, int64_t first, int64_t rows, const float* dn, const float* ds,
                        const float* s, const float* mean, const float* factor, float* dx, Y* dy, float* dweight,
                        float* dbias, float* scratch) {
  const int64_t size = how.size;
  for (int64_t r = 0; r < rows; ++r, dx += size, dy += size) {
    const float* keep = decide_row(how, first + r, scratch);
    float of_g = 0, of_gs = 0;  // means
    if (dn != nullptr) {
      Floats g_sum{}, gs_sum{};
      for (int64_t i = 0; i < size; i += lanes) {
        Floats a, g, w, sum;
        load_some(s + r * size + i, size - i, a);
        load_some(dn + r * size + i, size - i, g);
        a = (a - mean[r]) * factor[r];
        load_some(dbias + i, size - i, sum);
        sum += g;
        store_some(sum, size - i, dbias + i);
        load_some(dweight + i, size - i, sum);
        sum += g * a;
        store_some(sum, size - i, dweight + i);
        load_some(how.weight + i, size - i, w);
        g = g * w;
        g_sum += g;
        gs_sum += g * a;
      }
      of_g = sum_of(g_sum) / static_cast<float>(size), of_gs = sum_of(gs_sum) / static_cast<float>(size);
    }
    for (int64_t i = 0; i < size; i += lanes) {
      Floats d{};
      if (ds != nullptr) load_some(ds + r * size + i, size - i, d);
      if (dn != nullptr) {
        Floats a, g, w;
        load_some(s + r * size + i, size - i, a);
        load_some(dn + r * size + i, size - i, g);
        load_some(how.weight + i, size - i, w);
        a = (a - mean[r]) * factor[r];
        d += (g * w - of_g - a * of_gs) * factor[r];
      }
      store_some(d, size - i, dx + i);
      if (keep != nullptr) {
        Floats k;
        load_some(keep + i, size - i, k);
        d = kept(k, d);
      }
      store_some(d, size - i, dy + i);
    }
  }
}

#define MH_SUM_NORM(Y, name)                                                                                      \
  MH_VECTOR_LOOP void forward_##name(const SumNorm& how, int64_t first, int64_t rows, const float* x, const Y* y, \
                                     float* s, float* n, float* mean, float* factor, float* scratch) {            \
    forward(how, first, rows, x, y, s, n, mean, factor, scratch);                                                 \
  }                                                                                                               \
  MH_VECTOR_LOOP void backward_##name(const SumNorm& how, int64_t first, int64_t rows, const float* dn,           \
                                      const float* ds, const float* s, const float* mean, const float* factor,    \
                                      float* dx, Y* dy, float* dweight, float* dbias, float* scratch) {           \
    backward(how, first, rows, dn, ds, s, mean, factor, dx, dy, dweight, dbias, scratch);                         \
  }
MH_SUM_NORM(float, fp32)
MH_SUM_NORM(uint16_t, bf16)
#undef MH_SUM_NORM

}  // namespace

int64_t sum_norm_scratch(const SumNorm& how) { return how.size + 2 * kDropoutGroup; }

template <>
void sum_norm(const SumNorm& how, int64_t first, int64_t rows, const float* x, const float* y, float* s, float* n,
              float* mean, float* factor, float* scratch) {
  forward_fp32(how, first, rows, x, y, s, n, mean, factor, scratch);
}
template <>
void sum_norm(const SumNorm& how, int64_t first, int64_t rows, const float* x, const uint16_t* y, float* s, float* n,
              float* mean, float* factor, float* scratch) {
  forward_bf16(how, first, rows, x, y, s, n, mean, factor, scratch);
}
template <>
void sum_norm_backward(const SumNorm& how, int64_t first, int64_t rows, const float* dn, const float* ds,
                       const float* s, const float* mean, const float* factor, float* dx, float* dy, float* dweight,
                       float* dbias, float* scratch) {
  backward_fp32(how, first, rows, dn, ds, s, mean, factor, dx, dy, dweight, dbias, scratch);
}
template <>
void sum_norm_backward(const SumNorm& how, int64_t first, int64_t rows, const float* dn, const float* ds,
                       const float* s, const float* mean, const float* factor, float* dx, uint16_t* dy, float* dweight,
                       float* dbias, float* scratch) {
  backward_bf16(how, first, rows, dn, ds, s, mean, factor, dx, dy, dweight, dbias, scratch);
}

}  // namespace mh::kernels
