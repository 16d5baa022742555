// Loops over the logits of one query, and attention of one query that reads keys and values in place. A row of logits
// is padded to a multiple of 16 floats.
#pragma once

#include <cmath>

#include "ceil_div.h"
#include "cpu/logit_terms.h"
#include "cpu/vector.h"

namespace mh::kernels {

// Returns n rounded up to a multiple of 16.
MH_INLINE int64_t pad_to_lanes(int64_t n) { return round_up(n, lanes); }

// Replaces the first `num_visible` logits of s (width) by exp(s - maximum), and the other logits, which belong to
// masked keys, by 0. Returns the sum of the exponentials.
MH_INLINE float exponentiate_row(float* s, int64_t num_visible, int64_t width, float maximum) {
  Floats sum{};
  int64_t i = 0;
  for (; i < pad_to_lanes(num_visible); i += lanes) {
    Floats v;
    load(s + i, v);
    v = v - maximum;
    exp_nonpositive(v);
    replace_tail(num_visible - i, 0, v);
    sum += v;
    store(v, s + i);
  }
  for (; i < width; i += lanes) store(Floats{}, s + i);
  return sum_of(sum);
}

// Returns the maximum of the first `num_visible` logits of s; -inf if num_visible is 0.
MH_INLINE float max_visible_logit(const float* s, int64_t num_visible) {
  Floats max_lanes;
  fill(max_lanes, -INFINITY);
  for (int64_t i = 0; i < num_visible; i += lanes) {
    Floats v;
    load(s + i, v);
    replace_tail(num_visible - i, -INFINITY, v);
    max_lanes = select(v > max_lanes, v, max_lanes);
  }
  return max_of(max_lanes);
}

// Returns whether the first `num_visible` logits of s are all -inf, as in a fully masked row. A NaN is not -inf.
MH_INLINE bool all_masked(const float* s, int64_t num_visible) {
  for (int64_t i = 0; i < num_visible; ++i)
    if (!(s[i] == -INFINITY)) return false;
  return true;
}

// Computes 16 * num_vectors columns, from column `first` on, of `out` = `factor` * Σ_j s[j] value(j), over the keys j <
// `keys`.
template <int num_vectors, class Value, class T>
MH_INLINE void weighted_sum(const float* s, int64_t keys, const Value& value, int64_t first, float factor, T* out) {
  Floats sum[num_vectors];
  for (int i = 0; i < num_vectors; ++i) sum[i] = Floats{};
  for (int64_t j = 0; j < keys; ++j) {
    const T* from = value(j) + first;
    for (int i = 0; i < num_vectors; ++i) {
      Floats b;
      load(from + i * lanes, b);
      sum[i] += s[j] * b;
    }
  }
  for (int i = 0; i < num_vectors; ++i) {
    sum[i] = sum[i] * factor;
    store(sum[i], out + first + i * lanes);
  }
}

// Prefetches a row of `d` elements, since the rows of a key/value cache are too far apart for the hardware prefetcher.
template <class T>
MH_INLINE void prefetch_row(const T* from, int64_t d) {
  for (int64_t i = 0; i < d; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + i);
}
constexpr int64_t kPrefetchDistance = 4;  // the loop over keys prefetches the key this many keys ahead

// Access to keys and values: key(j) and value(j) return the addresses of key j (d) and value j (d), j < num_keys.
template <class Key, class Value>
struct KeysAndValues {
  Key key;
  Value value;
  int64_t num_keys;
};
template <class Key, class Value>
KeysAndValues(Key, Value, int64_t) -> KeysAndValues<Key, Value>;

// The terms of the logits of one query that depend on no product: add_terms(s) applies the soft cap and adds the
// position bias to its logits s; sink: logit of its sink, or null.
template <class AddTerms>
struct LogitTerms {
  AddTerms add_terms;
  const float* sink;
};
template <class AddTerms>
LogitTerms(AddTerms, const float*) -> LogitTerms<AddTerms>;

// Computes `out` (d) = `factor` * softmax(q kᵀ) v for one scaled query q (d) and the keys of `kv`, with `terms`; zeros
// if all logits are -inf. d is a multiple of 16. s: scratch, pad_to_lanes(kv.num_keys). Returns the log-sum-exp, nats;
// +inf if all logits are -inf.
template <class Key, class Value, class AddTerms, class T>
MH_INLINE float attend_query(const float* q, int64_t d, const KeysAndValues<Key, Value>& kv,
                             const LogitTerms<AddTerms>& terms, float factor, float* s, T* out) {
  const Key& key = kv.key;
  const Value& value = kv.value;
  const int64_t num_keys = kv.num_keys;
  for (int64_t j = 0; j < num_keys; ++j) {
    const T* k = key(j);
    if (j + kPrefetchDistance < num_keys) prefetch_row(key(j + kPrefetchDistance), d);
    prefetch_row(value(j), d);
    Floats sum{};
    for (int64_t c = 0; c < d; c += lanes) {
      Floats a, b;
      load(q + c, a);
      load(k + c, b);
      sum += a * b;
    }
    s[j] = sum_of(sum);
  }
  terms.add_terms(s);
  const float max_logit = max_visible_logit(s, num_keys);
  const bool is_fully_masked = max_logit == -INFINITY && all_masked(s, num_keys);
  const float exp_sum = exponentiate_row(s, is_fully_masked ? 0 : num_keys, pad_to_lanes(num_keys), max_logit);
  const RowSum row_sum = add_sink(terms.sink, max_logit, exp_sum);
  const float out_scale = is_fully_masked ? 0 : factor / row_sum.sum;
  int64_t c = 0;
  for (; c + 4 * lanes <= d; c += 4 * lanes) weighted_sum<4>(s, num_keys, value, c, out_scale, out);
  for (; c < d; c += lanes) weighted_sum<1>(s, num_keys, value, c, out_scale, out);
  return row_sum.lse;
}

}  // namespace mh::kernels
