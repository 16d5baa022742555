// Turns products of queries and keys into probabilities: scale, normaliser, mask and dropout of AttentionParams,
// element by element.
#pragma once

#include "cuda/attention.h"
#include "cuda/fragment.h"
#include "cuda/philox.h"

namespace mh::kernels {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Returns the range of keys visible to some query from `first` to `end` - 1 of batch row b.
MH_DEVICE KeyRange visible_keys(const AttentionParams& a, int64_t b, int first, int end) {
  const int keys = static_cast<int>(a.keys), offset = keys - static_cast<int>(a.queries);
  KeyRange visible{0, keys};
  if (a.key_lengths != nullptr && a.key_lengths[b] < keys) visible.end = static_cast<int>(a.key_lengths[b]);
  if (a.causal) {
    if (offset + end < visible.end) visible.end = offset + end;
    if (a.window > 0 && offset + first + 1 - a.window > 0)
      visible.first = static_cast<int>(offset + first + 1 - a.window);
  }
  return visible;
}

// Returns the range of queries that see some key from `first` to `end` - 1 of batch row b.
MH_DEVICE KeyRange queries_that_see(const AttentionParams& a, int64_t b, int first, int end) {
  const int queries = static_cast<int>(a.queries), offset = static_cast<int>(a.keys) - queries;
  KeyRange query_range{0, queries};
  if (a.key_lengths != nullptr && a.key_lengths[b] <= first) return {0, 0};
  if (a.causal) {
    if (first > offset) query_range.first = first - offset;
    if (const int64_t query_end = end - 1 - offset + a.window; a.window > 0 && query_end < queries)
      query_range.end = query_end > 0 ? static_cast<int>(query_end) : 0;
  }
  return query_range;
}

// Returns whether query i sees key s; keys from `real_keys` on are padding.
MH_DEVICE bool is_visible(const AttentionParams& a, int real_keys, int i, int s) {
  const int offset = static_cast<int>(a.keys - a.queries);
  return i < a.queries && s < real_keys &&
         (!a.causal || (s <= offset + i && (a.window == 0 || s > offset + i - static_cast<int>(a.window))));
}

// Returns whether `queries` queries from i on see all of the `keys` keys from s on.
MH_DEVICE bool all_visible(const AttentionParams& a, int real_keys, int i, int queries, int s, int keys) {
  const int offset = static_cast<int>(a.keys - a.queries);
  return i + queries <= a.queries && s + keys <= real_keys &&
         (!a.causal ||
          (s + keys <= offset + i + 1 && (a.window == 0 || s > offset + i + queries - 1 - static_cast<int>(a.window))));
}

// Masks a warp's products (16, 8 kColumns) of queries from i on and keys from s on, or, kTransposed, of keys and
// queries: products of pairs that do not see each other become -inf, so that their probability is zero. Most tiles have
// none.
template <bool kTransposed, int kColumns, class Thread>
MH_DEVICE void apply_mask(const Thread& thread, const AttentionParams& a, int real_keys, int i, int s,
                          Accumulator (&products)[kColumns]) {
  if (kTransposed ? all_visible(a, real_keys, i, 8 * kColumns, s, 16)
                  : all_visible(a, real_keys, i, 16, s, 8 * kColumns))
    return;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, kColumns)
    MH_FOR (e, 4) {
      const int row = g + e / 2 * 8, column = n * 8 + 2 * t + e % 2;
      if (!is_visible(a, real_keys, i + (kTransposed ? column : row), s + (kTransposed ? row : column)))
        products[n].x[e] = -INFINITY;
    }
}

// Returns log2 of the exponential for a product of query and key, and a number times the derivative of its natural
// logarithm by the product. The exponential of Sigsoftmax is exp(a) σ(a) = exp(2a - softplus(a)).
struct SoftmaxExponent {
  float factor, scale;
  template <class Thread>
  MH_DEVICE float logarithm(const Thread&, float product) const {
    return product * factor;
  }
  template <class Thread>
  MH_DEVICE float times_slope(const Thread&, float x, float, float) const {
    return x * scale;
  }
};
struct SigsoftmaxExponent {
  float scale;
  template <class Thread>
  MH_DEVICE float logarithm(const Thread& thread, float product) const {
    const float x = product * scale, size = x < 0 ? -x : x;
    return ((x < 0 ? 2 * x : x) - thread.log1p(thread.exp2(-size * kLog2E))) * kLog2E;
  }
  template <class Thread>
  MH_DEVICE float times_slope(const Thread& thread, float x, float probability, float product) const {
    return probability > 0 ? x * scale * (2 - 1 / (1 + thread.exp2(-product * scale * kLog2E))) : 0;
  }
};

// Calls work() with the normaliser as a type, so that element loops have no branch.
template <class Work>
MH_DEVICE void dispatch_normaliser(const AttentionParams& a, const Work& work) {
  if (a.normaliser == Normaliser::softmax) work(SoftmaxExponent{a.scale * kLog2E, a.scale});
  else work(SigsoftmaxExponent{a.scale});
}

// Returns the stream element that decides a probability of head `head` of batch row b.
MH_DEVICE uint64_t dropout_element(const AttentionParams& a, int64_t b, int64_t head, int query, int key) {
  return a.dropout_first +
         static_cast<uint64_t>(((b * a.dropout_heads + head) * a.queries + query) * a.dropout_row + key);
}

// Returns one bit for each element of a lane's accumulators: bit 4 n + e for sums[n].x[e]. The bits are packed into a
// word, since a rolled loop cannot index registers, and an unrolled loop would keep all random words live and spill.
// draw(c): two bits of columns (rows) 2 c, or one of c.
template <int kColumns, int kBitsPerDraw, class Draw>
MH_DEVICE uint32_t accumulator_bits(const Draw& draw) {
  static_assert(kColumns <= 8);
  uint32_t bits = 0;
  MH_ROLLED
  for (int c = 0; c < 4 * kColumns; c += kBitsPerDraw) bits |= draw(c) << c;
  return bits;
}
// Returns the dropout factor of element x: `scale` if its bit is set, otherwise 0.
MH_DEVICE float dropout_factor(uint32_t bits, int x, float scale) { return (bits >> x & 1) != 0 ? scale : 0; }
template <int kColumns>
MH_DEVICE void apply_keep_bits(uint32_t bits, float scale, Accumulator (&sums)[kColumns]) {
  MH_FOR (n, kColumns)
    MH_FOR (e, 4) sums[n].x[e] *= dropout_factor(bits, 4 * n + e, scale);
}

// Applies dropout to a lane's probabilities of queries i and i + 8 and the keys from s on, or to their gradients:
// dropped ones become zero, the others are divided by 1 - p.
template <int kColumns>
MH_DEVICE void drop(const AttentionParams& a, int64_t b, int64_t head, int i, int s, Accumulator (&sums)[kColumns]) {
  const uint32_t keep_bits = accumulator_bits<kColumns, 2>([&](int c) {
    const uint64_t element = dropout_element(a, b, head, i + c / 2 % 2 * 8, s + c / 4 * 8);
    const auto word = static_cast<unsigned>(element % 4);
    PhiloxWords words = philox(a.dropout, element / 4);
    uint32_t bits = keeps(a.dropout, word_at(words, word));
    if (word == 3) words = philox(a.dropout, element / 4 + 1);
    return bits | uint32_t{keeps(a.dropout, word_at(words, (word + 1) % 4))} << 1;
  });
  apply_keep_bits(keep_bits, a.dropout.scale, sums);
}

// Returns the bits of probabilities that dropout keeps, if columns are queries from i on and rows are keys s and s + 8;
// or, kByDistance, rows are the distances from query t to keys t + s and t + s + 8.
template <int kColumns, bool kByDistance = false>
MH_DEVICE uint32_t keep_bits_transposed(const AttentionParams& a, int64_t b, int64_t head, int i, int s) {
  return accumulator_bits<kColumns, 1>([&](int c) {
    const int query = i + c / 4 * 8 + c % 2;
    const uint64_t element = dropout_element(a, b, head, query, s + c / 2 % 2 * 8 + (kByDistance ? query : 0));
    return uint32_t{keeps(a.dropout, word_at(philox(a.dropout, element / 4), static_cast<unsigned>(element % 4)))};
  });
}

}  // namespace mh::kernels
