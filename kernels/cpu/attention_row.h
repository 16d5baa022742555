// Loops over one row of logits, and attention of one query that reads keys and values in place.
#pragma once

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

MH_INLINE int64_t padded(int64_t n) { return (n + lanes - 1) / lanes * lanes; }

// Sets the lanes from `count` on to `other`.
MH_INLINE void replace_from(int64_t count, float other, Floats& v) {
  if (count >= lanes) return;
  constexpr Ints lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Floats others;
  fill(others, other);
  v = lane < static_cast<int32_t>(count) ? v : others;
}

// Replaces s[0 … width) by exp(s - maximum) in its first `seen` elements, and by 0 after them. Returns the sum.
MH_INLINE float exponentials(float* s, int64_t seen, int64_t width, float maximum) {
  Floats sum{};
  int64_t i = 0;
  for (; i < padded(seen); i += lanes) {
    Floats v;
    load(s + i, v);
    v = v - maximum;
    exp_negative(v);
    replace_from(seen - i, 0, v);
    sum += v;
    store(v, s + i);
  }
  for (; i < width; i += lanes) store(Floats{}, s + i);
  return sum_of(sum);
}

MH_INLINE float maximum_of(const float* s, int64_t seen) {
  Floats top;
  fill(top, -INFINITY);
  for (int64_t i = 0; i < seen; i += lanes) {
    Floats v;
    load(s + i, v);
    replace_from(seen - i, -INFINITY, v);
    top = v > top ? v : top;
  }
  return max_of(top);
}

// Returns whether all logits are -inf, as in a fully masked row. A NaN is not -inf.
MH_INLINE bool all_hidden(const float* s, int64_t seen) {
  for (int64_t i = 0; i < seen; ++i)
    if (!(s[i] == -INFINITY)) return false;
  return true;
}

// Returns the log-sum-exp, ln(exp(top) * sum); infinite if the sum is 0, so that no probability is left.
MH_INLINE float log_sum(float top, float sum) { return sum == 0 ? INFINITY : top + std::log(sum); }

// Computes out (16 * vectors) = factor * Σ_j s[j] value(j), columns from `first` on.
template <int vectors, class Value, class T>
MH_INLINE void weighed_sum(const float* s, int64_t keys, const Value& value, int64_t first, float factor, T* out) {
  Floats sum[vectors];
  for (int i = 0; i < vectors; ++i) sum[i] = Floats{};
  for (int64_t j = 0; j < keys; ++j) {
    const T* from = value(j) + first;
    for (int i = 0; i < vectors; ++i) {
      Floats b;
      load(from + i * lanes, b);
      sum[i] += s[j] * b;
    }
  }
  for (int i = 0; i < vectors; ++i) {
    sum[i] = sum[i] * factor;
    store(sum[i], out + first + i * lanes);
  }
}

// Prefetches `d` elements: the rows of a cache are too far apart for the hardware prefetcher.
template <class T>
MH_INLINE void fetch(const T* from, int64_t d) {
  for (int64_t i = 0; i < d; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + i);
}
constexpr int64_t kAhead = 4;  // keys

// key(j) and value(j) return pointers to a key and a value, (d) each.
template <class Key, class Value>
struct KeysAndValues {
  Key key;
  Value value;
};
template <class Key, class Value>
KeysAndValues(Key, Value) -> KeysAndValues<Key, Value>;

// Computes out (d) = factor * softmax(q kᵀ) v of one scaled query (d), d a multiple of 16; zeros for a fully masked
// row. s: scratch, padded(keys). Returns log_sum().
template <class Key, class Value, class T>
MH_INLINE float attend_one(const float* q, int64_t keys, int64_t d, const KeysAndValues<Key, Value>& of, float factor,
                           float* s, T* out) {
  const Key& key = of.key;
  const Value& value = of.value;
  for (int64_t j = 0; j < keys; ++j) {
    const T* k = key(j);
    if (j + kAhead < keys) fetch(key(j + kAhead), d);
    fetch(value(j), d);
    Floats sum{};
    for (int64_t c = 0; c < d; c += lanes) {
      Floats a, b;
      load(q + c, a);
      load(k + c, b);
      sum += a * b;
    }
    s[j] = sum_of(sum);
  }
  const float top = maximum_of(s, keys);
  const bool hidden = top == -INFINITY && all_hidden(s, keys);
  const float total = exponentials(s, hidden ? 0 : keys, padded(keys), top), inverse = hidden ? 0 : factor / total;
  int64_t c = 0;
  for (; c + 4 * lanes <= d; c += 4 * lanes) weighed_sum<4>(s, keys, value, c, inverse, out);
  for (; c < d; c += lanes) weighed_sum<1>(s, keys, value, c, inverse, out);
  return log_sum(top, total);
}

}  // namespace mh::kernels
