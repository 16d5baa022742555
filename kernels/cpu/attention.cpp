#include "cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "cpu/attention_row.h"
#include "cpu/dropout_decisions.h"
#include "cpu/products.h"

namespace mh::kernels {

namespace {

constexpr int64_t block = 32;  // queries at once: 32 x 2048 probabilities take a quarter of a 1 MB cache

// to (rows, size) = factor * from; rows up to the next multiple of 16 are zero.
template <class T>
MH_INLINE void unpack(Matrix<const T> from, int64_t rows, int64_t size, float factor, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v;
      load(from.data + r * from.stride + i, v);
      v = v * factor;
      store(v, to + r * size + i);
    }
  std::memset(to + rows * size, 0, static_cast<size_t>((padded(rows) - rows) * size) * sizeof(float));
}

// to (size, padded rows) = from (padded rows, size) transposed.
MH_INLINE void transpose(const float* from, int64_t rows, int64_t size, float* to) {
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t i = 0; i < size; ++i) {
      Floats v;
      for (int j = 0; j < lanes; ++j) v[j] = from[(r + j) * size + i];
      store(v, to + i * rows + r);
    }
}

template <class T>
MH_INLINE void pack(const float* from, int64_t rows, int64_t size, float factor, Matrix<T> to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v;
      load(from + r * size + i, v);
      v = v * factor;
      store(v, to.data + r * to.stride + i);
    }
}

// How many keys query i sees.
MH_INLINE int64_t seen_by(const Attention& how, int64_t i) {
  return how.causal ? how.keys - how.queries + i + 1 : how.keys;
}

// What is kept of the probabilities of m queries from the `first` on: (m, dropout_row), where queries see keys.
MH_INLINE void decide_block(const Attention& how, int64_t first, int64_t m, float* keep) {
  const int64_t row = how.dropout_row;
  const uint64_t begin = how.dropout_first + static_cast<uint64_t>(first * row);
  if (!how.causal) return decide_range(*how.dropout, begin, m * row, keep);
  for (int64_t i = 0; i < m; ++i)
    decide_range(*how.dropout, begin + static_cast<uint64_t>(i * row), seen_by(how, first + i), keep + i * row);
}

// x (count) is multiplied with keep; what is dropped is 0 whatever it was.
MH_INLINE void drop(const float* keep, int64_t count, float* x) {
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    Floats v, k;
    load(x + j, v);
    load(keep + j, k);
    store(kept(k, v), x + j);
  }
  for (; j < count; ++j) x[j] = kept(keep[j], x[j]);
}

// Of decide_block, whole groups included.
int64_t decisions_scratch(const Attention& how) {
  return how.dropout != nullptr ? padded(block * how.dropout_row) + 2 * kDropoutGroup : 0;
}

template <class T>
struct InRows {
  Matrix<const T> rows;
  MH_INLINE const T* operator()(int64_t j) const { return rows.data + j * rows.stride; }
};

// Of kFewQueries at most: nothing is unpacked.
template <class T>
MH_INLINE void forward_few(const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                           float* log_sums, float* scratch) {
  const int64_t d = how.size, keys = padded(how.keys);
  float* s = scratch;     // (keys)
  float* row = s + keys;  // a scaled query (d)
  for (int64_t i = 0; i < how.queries; ++i) {
    unpack(Matrix<const T>{q.data + i * q.stride, q.stride}, 1, d, how.scale, row);
    log_sums[i] = attend_one(row, seen_by(how, i), d, InRows<T>{k}, InRows<T>{v}, s, out.data + i * out.stride);
  }
}

template <class Tile, class T>
MH_INLINE void forward(const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                       float* log_sums, float* scratch) {
  if (how.queries <= kFewQueries && !how.gradient && how.dropout == nullptr)
    return forward_few(how, q, k, v, out, log_sums, scratch);
  const int64_t d = how.size, keys = padded(how.keys);
  float* values = scratch;            // (keys, d)
  float* turned = values + keys * d;  // keys transposed: (d, keys)
  float* s = turned + keys * d;       // (block, keys)
  float* rows = s + block * keys;     // (block, d)
  float* sums = rows + block * d;     // (block, d)
  float* keep = sums + block * d + kDropoutGroup;
  unpack(k, how.keys, d, 1.0F, values);
  transpose(values, keys, d, turned);
  unpack(v, how.keys, d, 1.0F, values);
  for (int64_t first = 0; first < how.queries; first += block) {
    const int64_t m = std::min(block, how.queries - first), mp = padded(m);
    const int64_t width = padded(seen_by(how, first + m - 1));
    unpack(Matrix<const T>{q.data + first * q.stride, q.stride}, m, d, how.scale, rows);
    product<Tile, false>(mp, width, d, rows, d, 1, turned, keys, s, keys);
    if (how.dropout != nullptr) decide_block(how, first, m, keep);
    float inverse[block];
    for (int64_t i = 0; i < m; ++i) {
      const int64_t seen = seen_by(how, first + i);
      const float top = maximum_of(s + i * keys, seen);
      const float sum = exponentials(s + i * keys, seen, width, top);
      inverse[i] = sum == 0 ? 0 : 1 / sum;
      log_sums[first + i] = top + std::log(sum);
      if (how.dropout != nullptr) drop(keep + i * how.dropout_row, seen, s + i * keys);
    }
    product<Tile, false>(mp, d, width, s, keys, 1, values, d, sums, d);
    for (int64_t i = 0; i < m; ++i)
      pack(sums + i * d, 1, d, inverse[i], Matrix<T>{out.data + (first + i) * out.stride, out.stride});
  }
}

template <class Tile, class T>
MH_INLINE void backward(const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                        Matrix<const T> out, Matrix<const T> dout, const float* log_sums,
                        const AttentionGradients<T>& gradients, float* scratch) {
  const int64_t d = how.size, keys = padded(how.keys);
  float* plain = scratch;                 // keys (keys, d)
  float* turned_k = plain + keys * d;     // (d, keys)
  float* turned_v = turned_k + keys * d;  // (d, keys)
  float* dk = turned_v + keys * d;        // (keys, d)
  float* dv = dk + keys * d;              // (keys, d)
  float* p = dv + keys * d;               // (block, keys)
  float* ds = p + block * keys;           // (block, keys)
  float* rows = ds + block * keys;        // scaled queries (block, d)
  float* drows = rows + block * d;        // (block, d)
  float* sums = drows + block * d;        // (block, d)
  float* keep = sums + block * d + kDropoutGroup;
  unpack(v, how.keys, d, 1.0F, plain);
  transpose(plain, keys, d, turned_v);
  unpack(k, how.keys, d, 1.0F, plain);
  transpose(plain, keys, d, turned_k);
  std::memset(dk, 0, static_cast<size_t>(2 * keys * d) * sizeof(float));
  for (int64_t first = 0; first < how.queries; first += block) {
    const int64_t m = std::min(block, how.queries - first), mp = padded(m);
    const int64_t width = padded(seen_by(how, first + m - 1));
    unpack(Matrix<const T>{q.data + first * q.stride, q.stride}, m, d, how.scale, rows);
    unpack(Matrix<const T>{dout.data + first * dout.stride, dout.stride}, m, d, 1.0F, drows);
    product<Tile, false>(mp, width, d, rows, d, 1, turned_k, keys, p, keys);
    product<Tile, false>(mp, width, d, drows, d, 1, turned_v, keys, ds, keys);
    if (how.dropout != nullptr) decide_block(how, first, m, keep);
    for (int64_t i = 0; i < mp; ++i) {
      float* pi = p + i * keys;
      float* dsi = ds + i * keys;
      if (i >= m) {  // rows that only fill the tile
        std::memset(pi, 0, static_cast<size_t>(width) * sizeof(float));
        std::memset(dsi, 0, static_cast<size_t>(width) * sizeof(float));
        continue;
      }
      const int64_t seen = seen_by(how, first + i);
      exponentials(pi, seen, width, log_sums[first + i]);
      const float* kept = keep + i * how.dropout_row;
      if (how.dropout != nullptr) drop(kept, seen, dsi);
      Floats product_sum{};  // sum over the row of P dP, dropout included: dO times O
      for (int64_t j = 0; j < d; j += lanes) {
        Floats o, g;
        load(out.data + (first + i) * out.stride + j, o);
        load(drows + i * d + j, g);
        product_sum += o * g;
      }
      const float delta = sum_of(product_sum);
      for (int64_t j = 0; j < width; j += lanes) {
        Floats a, b;
        load(pi + j, a);
        load(dsi + j, b);
        b = a * (b - delta);
        store(b, dsi + j);
      }
      if (how.dropout != nullptr) drop(kept, seen, pi);
    }
    product<Tile, false>(mp, d, width, ds, keys, 1, plain, d, sums, d);
    pack(sums, m, d, how.scale, Matrix<T>{gradients.dq.data + first * gradients.dq.stride, gradients.dq.stride});
    product<Tile, true>(width, d, mp, ds, 1, keys, rows, d, dk, d);
    product<Tile, true>(width, d, mp, p, 1, keys, drows, d, dv, d);
  }
  pack(dk, how.keys, d, 1.0F, gradients.dk);
  pack(dv, how.keys, d, 1.0F, gradients.dv);
}

#define MH_ATTENTION(T, name)                                                                                        \
  __attribute__((target("arch=x86-64-v4"))) void forward_large_##name(                                               \
      const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<T> out, float* log_sums, \
      float* scratch) {                                                                                              \
    forward<Large>(how, q, k, v, out, log_sums, scratch);                                                            \
  }                                                                                                                  \
  __attribute__((target_clones("arch=x86-64-v3", "default"))) void forward_small_##name(                             \
      const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<T> out, float* log_sums, \
      float* scratch) {                                                                                              \
    forward<Small>(how, q, k, v, out, log_sums, scratch);                                                            \
  }                                                                                                                  \
  __attribute__((target("arch=x86-64-v4"))) void backward_large_##name(                                              \
      const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<const T> out,            \
      Matrix<const T> dout, const float* log_sums, const AttentionGradients<T>& gradients, float* scratch) {         \
    backward<Large>(how, q, k, v, out, dout, log_sums, gradients, scratch);                                          \
  }                                                                                                                  \
  __attribute__((target_clones("arch=x86-64-v3", "default"))) void backward_small_##name(                            \
      const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<const T> out,            \
      Matrix<const T> dout, const float* log_sums, const AttentionGradients<T>& gradients, float* scratch) {         \
    backward<Small>(how, q, k, v, out, dout, log_sums, gradients, scratch);                                          \
  }
MH_ATTENTION(float, fp32)
MH_ATTENTION(uint16_t, bf16)
#undef MH_ATTENTION

bool wide() {
  static const bool answer = __builtin_cpu_supports("x86-64-v4");
  return answer;
}

}  // namespace

int64_t attention_forward_scratch(const Attention& how) {
  const int64_t keys = padded(how.keys);
  return 2 * keys * how.size + block * keys + 2 * block * how.size + decisions_scratch(how);
}
int64_t attention_backward_scratch(const Attention& how) {
  const int64_t keys = padded(how.keys);
  return 5 * keys * how.size + 2 * block * keys + 3 * block * how.size + decisions_scratch(how);
}

template <>
void attention_forward(const Attention& how, Matrix<const float> q, Matrix<const float> k, Matrix<const float> v,
                       Matrix<float> out, float* log_sums, float* scratch) {
  (wide() ? forward_large_fp32 : forward_small_fp32)(how, q, k, v, out, log_sums, scratch);
}
template <>
void attention_forward(const Attention& how, Matrix<const uint16_t> q, Matrix<const uint16_t> k,
                       Matrix<const uint16_t> v, Matrix<uint16_t> out, float* log_sums, float* scratch) {
  (wide() ? forward_large_bf16 : forward_small_bf16)(how, q, k, v, out, log_sums, scratch);
}
template <>
void attention_backward(const Attention& how, Matrix<const float> q, Matrix<const float> k, Matrix<const float> v,
                        Matrix<const float> out, Matrix<const float> dout, const float* log_sums,
                        const AttentionGradients<float>& gradients, float* scratch) {
  (wide() ? backward_large_fp32 : backward_small_fp32)(how, q, k, v, out, dout, log_sums, gradients, scratch);
}
template <>
void attention_backward(const Attention& how, Matrix<const uint16_t> q, Matrix<const uint16_t> k,
                        Matrix<const uint16_t> v, Matrix<const uint16_t> out, Matrix<const uint16_t> dout,
                        const float* log_sums, const AttentionGradients<uint16_t>& gradients, float* scratch) {
  (wide() ? backward_large_bf16 : backward_small_bf16)(how, q, k, v, out, dout, log_sums, gradients, scratch);
}

}  // namespace mh::kernels
