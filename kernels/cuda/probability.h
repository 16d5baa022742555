// From products of queries and keys to probabilities: scale, normaliser, mask and dropout of Policy, element by
// element.
#pragma once

#include "cuda/attention.h"
#include "cuda/fragment.h"
#include "cuda/philox.h"

namespace mh::kernels {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Keys that some query from `first` to `end` - 1 of row b sees.
MH_DEVICE KeyRange keys_seen(const AttentionCall& a, int64_t b, int first, int end) {
  const int keys = static_cast<int>(a.keys), offset = keys - static_cast<int>(a.queries);
  KeyRange seen{0, keys};
  if (a.key_lengths != nullptr && a.key_lengths[b] < keys) seen.end = static_cast<int>(a.key_lengths[b]);
  if (a.causal) {
    if (offset + end < seen.end) seen.end = offset + end;
    if (a.window > 0 && offset + first + 1 - a.window > 0) seen.first = static_cast<int>(offset + first + 1 - a.window);
  }
  return seen;
}

// Queries that see some key from `first` to `end` - 1 of row b.
MH_DEVICE KeyRange queries_seeing(const AttentionCall& a, int64_t b, int first, int end) {
  const int queries = static_cast<int>(a.queries), offset = static_cast<int>(a.keys) - queries;
  KeyRange seeing{0, queries};
  if (a.key_lengths != nullptr && a.key_lengths[b] <= first) return {0, 0};
  if (a.causal) {
    if (first > offset) seeing.first = first - offset;
    if (a.window > 0 && end - 1 - offset + a.window < queries)
      seeing.end = static_cast<int>(end - 1 - offset + a.window);
  }
  return seeing;
}

// Whether query i sees key s, of which those before `real` are there.
MH_DEVICE bool sees(const AttentionCall& a, int real, int i, int s) {
  const int offset = static_cast<int>(a.keys - a.queries);
  return i < a.queries && s < real &&
         (!a.causal || (s <= offset + i && (a.window == 0 || s > offset + i - static_cast<int>(a.window))));
}

// Whether `queries` queries from i on see all of so many keys from s on.
MH_DEVICE bool all_see(const AttentionCall& a, int real, int i, int queries, int s, int keys) {
  const int offset = static_cast<int>(a.keys - a.queries);
  return i + queries <= a.queries && s + keys <= real &&
         (!a.causal ||
          (s + keys <= offset + i + 1 && (a.window == 0 || s > offset + i + queries - 1 - static_cast<int>(a.window))));
}

// A warp's products (16, 8 kColumns) of queries from i on and keys from s on, or, kTurned, of keys and queries: those
// of pairs that do not see one another become -inf, of which the probability is zero. Most tiles have none.
template <bool kTurned, int kColumns, class Thread>
MH_DEVICE void hide_unseen(const Thread& thread, const AttentionCall& a, int real, int i, int s,
                           Sum (&products)[kColumns]) {
  if (kTurned ? all_see(a, real, i, 8 * kColumns, s, 16) : all_see(a, real, i, 16, s, 8 * kColumns)) return;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, kColumns)
    MH_FOR (e, 4) {
      const int row = g + e / 2 * 8, column = n * 8 + 2 * t + e % 2;
      if (!sees(a, real, i + (kTurned ? column : row), s + (kTurned ? row : column))) products[n].x[e] = -INFINITY;
    }
}

// log2 of what is summed for a product of query and key; of Sigsoftmax exp(a) σ(a) = exp(2a - softplus(a)).
template <class Thread>
MH_DEVICE float logarithm(const Thread& thread, const AttentionCall& a, float product) {
  const float x = product * a.scale;
  if (a.normaliser == Normaliser::softmax) return x * kLog2E;
  const float size = x < 0 ? -x : x;
  return ((x < 0 ? 2 * x : x) - thread.log1p(thread.exp2(-size * kLog2E))) * kLog2E;
}

// The derivative of its natural logarithm by the product.
template <class Thread>
MH_DEVICE float slope(const Thread& thread, const AttentionCall& a, float product) {
  if (a.normaliser == Normaliser::softmax) return a.scale;
  return a.scale * (2 - 1 / (1 + thread.exp2(-product * a.scale * kLog2E)));
}

// What remains of the probabilities of query i, of head `head` of row b, and keys s and s + 1: 0 or 1 / (1 - p).
MH_DEVICE void dropped(const AttentionCall& a, int64_t b, int64_t head, int i, int s, float (&factor)[2]) {
  const uint64_t element =
      a.dropout_first + static_cast<uint64_t>(((b * a.dropout_heads + head) * a.queries + i) * a.dropout_row + s);
  PhiloxWords words = philox(a.dropping, element / 4);
  const auto place = static_cast<unsigned>(element % 4);
  MH_UNROLL
  for (unsigned e = 0; e < 2; ++e) {
    if (e == 1 && place == 3) words = philox(a.dropping, element / 4 + 1);
    factor[e] = keeps(a.dropping, word_at(words, (place + e) % 4)) ? a.dropping.scale : 0;
  }
}

// Of both in row r of a lane's numbers.
MH_DEVICE void drop_pair(const AttentionCall& a, int64_t b, int64_t head, int i, int s, int r, Sum& sum) {
  float factor[2];
  dropped(a, b, head, i, s, factor);
  sum.x[2 * r] *= factor[0], sum.x[2 * r + 1] *= factor[1];
}

// The same of one key.
MH_DEVICE float dropped(const AttentionCall& a, int64_t b, int64_t head, int i, int s) {
  const uint64_t element =
      a.dropout_first + static_cast<uint64_t>(((b * a.dropout_heads + head) * a.queries + i) * a.dropout_row + s);
  const PhiloxWords words = philox(a.dropping, element / 4);
  return keeps(a.dropping, word_at(words, static_cast<unsigned>(element % 4))) ? a.dropping.scale : 0;
}

}  // namespace mh::kernels
