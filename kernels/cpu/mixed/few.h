// Loops of mixed_attention.cpp: few queries, as decoding has them.
#pragma once

#include "cpu/mixed/query.h"

namespace mh::kernels {

namespace {

// The keys or values of head h that a query sees, from position 0 to seen - 1.
template <class T>
struct SeenRows {
  const Heads<const T>& of;
  int64_t h, seen;
  MH_INLINE const T* at(int64_t t) const { return of.at(h, t); }
  // Rows of a cache lie apart, each beyond what the processor foresees.
  MH_INLINE void fetch_ahead(int64_t t, int64_t first, int64_t size) const {
    if (of.table != nullptr && t + kAhead < seen) fetch(at(t + kAhead) + first, size);
  }
};

// out (vectors * 16 of `size`) = Σ_s x[s] v_s from column `first` on.
template <int vectors, class T>
void weighed_values(const Layout& l, const float* x, const SeenRows<T>& v, int64_t first, int64_t size, T* out) {
  Floats sum[vectors];
  for (int i = 0; i < vectors; ++i) sum[i] = Floats{};
  for (int64_t s = 0; s < v.seen; ++s) {
    const float weight = x[place_of(l, s)];
    const T* value = v.at(s) + first;
    v.fetch_ahead(s, first, vectors * lanes);
    for (int i = 0; i < vectors; ++i) {
      Floats b;
      load_part(value + i * lanes, size - first - i * lanes, b);
      sum[i] += weight * b;
    }
  }
  for (int i = 0; i < vectors; ++i) store_part(sum[i], size - first - i * lanes, out + first + i * lanes);
}

// The memory that the three steps share: the numbers of every query, then the scratch for mixing one query. Keys and
// values are not unpacked for kFewQueries queries or fewer.
struct Few {
  Layout l;
  float *queries, *mixed, *matrix;  // (queries, l.query()); (heads, chunk); (in, out)
  float *tops, *sums;               // (in)
  MH_INLINE Few(const AttentionParams& how, float* shared)
      : l(of_few(how)),
        queries(shared),
        mixed(queries + how.queries * l.query()),
        matrix(mixed + l.heads * chunk),
        tops(matrix + padded(how.in_heads * how.out_heads)),
        sums(tops + how.in_heads) {}
  MH_INLINE float* query(int64_t t) const { return queries + t * l.query(); }
};

// x = or += the products of one query's `size` numbers from column `first` on, in `vectors` vectors, with keys.
template <int vectors, class T>
void few_products(const Layout& l, const T* q, float scale, int64_t size, const SeenRows<T>& k, int64_t first,
                  float* x) {
  Floats row[vectors];
  for (int i = 0; i < vectors; ++i) {
    load_part(q + i * lanes, size - i * lanes, row[i]);
    row[i] = row[i] * scale;
  }
  const bool whole = size == vectors * lanes;
  for (int64_t s = 0; s < k.seen; ++s) {
    const T* key = k.at(s) + first;
    k.fetch_ahead(s, first, size);
    Floats sum{};
    for (int i = 0; i < vectors; ++i) {
      Floats b;
      if (whole) load(key + i * lanes, b);
      else load_part(key + i * lanes, size - i * lanes, b);
      sum += row[i] * b;
    }
    float& to = x[place_of(l, s)];
    to = (first > 0 ? to : 0) + sum_of(sum);
  }
}

}  // namespace

// Logits of head j.
template <Level L, class T>
void MixedLoops<L, T>::few_logits(const AttentionParams& how, int64_t j, Heads<const T> q, Heads<const T> k,
                                  float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t)
    for (int64_t first = 0; first < how.key_size; first += 4 * lanes) {
      const int64_t size = std::min<int64_t>(how.key_size - first, 4 * lanes);
      const auto products = size > 2 * lanes ? few_products<4, T>
                            : size > lanes   ? few_products<2, T>
                                             : few_products<1, T>;
      products(few.l, q.at(j, t) + first, how.scale, size, SeenRows<T>{k, how.key_head(j), how.seen(t)}, first,
               few.query(t) + j * chunk);
    }
}

template <Level L, class T>
void MixedLoops<L, T>::few_mix(const AttentionParams& how, float* lse, float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t) {
    const Query q(how, t, 0, how.seen(t));
    std::fill_n(few.tops, how.in_heads, -INFINITY), std::fill_n(few.sums, how.in_heads, 0.0F);
    soften_query(how, few.l, q, few.query(t), few.tops, few.sums);
    for (int64_t j = 0; j < how.in_heads; ++j) lse[j * how.queries + t] = log_sum(few.tops[j], few.sums[j]);
    with_sums(how, how.matrix + t * how.matrix_query_stride, few.sums, few.matrix);
    mix_query(how, few.l, q, few.matrix, few.query(t), nullptr, few.mixed);
  }
}

// Values of head i.
template <Level L, class T>
void MixedLoops<L, T>::few_values(const AttentionParams& how, int64_t i, Heads<const T> v, Heads<T> out,
                                  float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t) {
    const float* x = few.query(t) + i * chunk;
    const SeenRows<T> values{v, how.value_head(i), how.seen(t)};
    int64_t c = 0;
    for (; c + 4 * lanes <= how.value_size; c += 4 * lanes)
      weighed_values<4>(few.l, x, values, c, how.value_size, out.at(i, t));
    for (; c < how.value_size; c += lanes) weighed_values<1>(few.l, x, values, c, how.value_size, out.at(i, t));
  }
}

}  // namespace mh::kernels
