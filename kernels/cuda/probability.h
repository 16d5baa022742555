// Applies the mask, logit terms, normaliser and dropout of AttentionParams to the accumulators of a warp, to turn
// products of queries and keys into probabilities. A product is Q · K before the scale of the logits is applied.
//
// Logit terms are a soft cap, a position bias, sinks, and a window without a causal mask. Kernels with kLogitTerms
// compute all of them and test at run time which ones a call has. The other kernels compute none of them: a logit is
// the scale times the product, and the scale is applied in the exponent.
#pragma once

#include "cuda/attention.h"
#include "cuda/fragment.h"
#include "cuda/philox.h"

namespace mh::kernels {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Returns how many of the first `keys` keys of batch row b are not padding.
MH_DEVICE int num_unpadded_keys_of(const AttentionParams& params, int64_t b, int keys) {
  return params.key_lengths != nullptr && params.key_lengths[b] < keys ? static_cast<int>(params.key_lengths[b]) : keys;
}

// Returns the range of keys that at least one of the queries `first` … `first` + `count` - 1 of batch row b sees.
template <bool kLogitTerms = false>
MH_DEVICE IndexRange visible_keys(const AttentionParams& params, int64_t b, int first, int count) {
  const int queries = static_cast<int>(params.queries), end = first + count < queries ? first + count : queries;
  const int keys = static_cast<int>(params.keys), causal_offset = keys - queries;
  IndexRange visible_range{0, num_unpadded_keys_of(params, b, keys)};
  if (params.causal) {
    if (causal_offset + end < visible_range.end) visible_range.end = causal_offset + end;
    if (params.window > 0 && causal_offset + first + 1 - params.window > 0)
      visible_range.first = static_cast<int>(causal_offset + first + 1 - params.window);
  } else if (kLogitTerms && params.window > 0) {
    if (end - 1 + params.window < visible_range.end) visible_range.end = static_cast<int>(end - 1 + params.window);
    if (first + 1 - params.window > 0) visible_range.first = static_cast<int>(first + 1 - params.window);
    if (visible_range.first > visible_range.end) visible_range.first = visible_range.end;
  }
  return visible_range;
}

// Returns a range that includes all queries that see at least one of the keys `first` … `first` + `count` - 1 of batch
// row b; empty if all of these keys are padding. Keys from key `key_end` on are ignored: they do not exist, or belong
// to the next key range.
template <bool kLogitTerms = false>
MH_DEVICE IndexRange attending_queries(const AttentionParams& params, int64_t b, int first, int count, int key_end) {
  const int end = first + count < key_end ? first + count : key_end;
  const int queries = static_cast<int>(params.queries), causal_offset = static_cast<int>(params.keys) - queries;
  IndexRange query_range{0, queries};
  if (params.key_lengths != nullptr && params.key_lengths[b] <= first) return {0, 0};
  if (params.causal) {
    if (first > causal_offset) query_range.first = first - causal_offset;
    if (const int64_t query_end = end - 1 - causal_offset + params.window; params.window > 0 && query_end < queries)
      query_range.end = query_end > 0 ? static_cast<int>(query_end) : 0;
  } else if (kLogitTerms && params.window > 0) {
    if (end - 1 + params.window < queries) query_range.end = static_cast<int>(end - 1 + params.window);
    if (first + 1 - params.window > 0) query_range.first = static_cast<int>(first + 1 - params.window);
    if (query_range.first > query_range.end) query_range.first = query_range.end;
  }
  return query_range;
}

// Returns whether, without a causal mask, a query sees the keys that are `first_offset` … `last_offset` positions after
// it.
MH_DEVICE bool is_in_window(const AttentionParams& params, int first_offset, int last_offset) {
  return params.window == 0 ||
         (first_offset > -static_cast<int>(params.window) && last_offset < static_cast<int>(params.window));
}

// Returns whether query i exists and sees key s. Keys from key `key_end` on count as masked: they are padding, or
// belong to the next split or key range.
template <bool kLogitTerms = false>
MH_DEVICE bool is_visible(const AttentionParams& params, int key_end, int i, int s) {
  if (kLogitTerms && !params.causal) return i < params.queries && s < key_end && is_in_window(params, s - i, s - i);
  const int causal_offset = static_cast<int>(params.keys - params.queries);
  return i < params.queries && s < key_end &&
         (!params.causal ||
          (s <= causal_offset + i && (params.window == 0 || s > causal_offset + i - static_cast<int>(params.window))));
}

// Returns whether all of the `queries` queries from query i on see all of the `keys` keys from key s on.
template <bool kLogitTerms = false>
MH_DEVICE bool all_visible(const AttentionParams& params, int key_end, int i, int queries, int s, int keys) {
  if (kLogitTerms && !params.causal)
    return i + queries <= params.queries && s + keys <= key_end &&
           is_in_window(params, s - (i + queries - 1), s + keys - 1 - i);
  const int causal_offset = static_cast<int>(params.keys - params.queries);
  return i + queries <= params.queries && s + keys <= key_end &&
         (!params.causal ||
          (s + keys <= causal_offset + i + 1 &&
           (params.window == 0 || s > causal_offset + i + queries - 1 - static_cast<int>(params.window))));
}

// Sets the products of masked pairs of query and key to -inf, so that their probabilities are zero. products (16,
// 8 kColumnFragments): rows are queries from query i on, columns are keys from key s on; if kTransposed, rows are keys
// and columns are queries. Returns early if the tile has no masked pair. Called by all lanes of a warp.
template <bool kTransposed, bool kLogitTerms = false, int kColumnFragments, class Thread>
MH_DEVICE void apply_mask(const Thread& thread, const AttentionParams& params, int key_end, int i, int s,
                          Accumulator (&products)[kColumnFragments]) {
  if (kTransposed ? all_visible<kLogitTerms>(params, key_end, i, 8 * kColumnFragments, s, 16)
                  : all_visible<kLogitTerms>(params, key_end, i, 16, s, 8 * kColumnFragments))
    return;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, kColumnFragments)
    MH_FOR (e, 4) {
      const int row = g + e / 2 * 8, column = n * 8 + 2 * t + e % 2;
      if (!is_visible<kLogitTerms>(params, key_end, i + (kTransposed ? column : row), s + (kTransposed ? row : column)))
        products[n].x[e] = -INFINITY;
    }
}

// The soft cap and the position bias of a head, in kernels with kLogitTerms.
struct LogitTerms {
  float scale, soft_cap;  // members of AttentionParams
  const float* bias;      // (num_distances), position bias of the head; null: none

  MH_DEVICE LogitTerms(const AttentionParams& params, int64_t head)
      : scale(params.scale),
        soft_cap(params.soft_cap),
        bias(params.has_position_bias() ? params.position_bias.bias + head * params.position_bias.head_stride
                                        : nullptr) {}

  // Returns the logit of a product, and writes its derivative with respect to the product to `slope`. distance_column:
  // column of the position bias for the query and the key. The product -inf of a masked pair, for which
  // `distance_column` may be out of range, has the logit -inf.
  template <class Thread>
  MH_DEVICE float logit(const Thread& thread, float product, int distance_column, float& slope) const {
    slope = scale;
    if (product == -INFINITY) return product;
    float x = product * scale;
    if (soft_cap > 0) {
      const float ratio = thread.tanh(x / soft_cap);
      x = soft_cap * ratio, slope *= 1 - ratio * ratio;
    }
    if (bias != nullptr) {
      float distance_bias[1];
      thread.read(distance_bias, bias + distance_column);
      x += distance_bias[0];
    }
    return x;
  }
};

// The normalisers. A probability is proportional to f(product): for softmax f = exp(a) with the logit
// a = scale * product, and for Sigsoftmax f = exp(a) σ(a) = exp(2a - softplus(a)). log2_numerator() returns
// log2 f(product). multiply_slope() returns x * d ln f(product) / d product, or, for Sigsoftmax, 0 if `probability`,
// the probability of the product, is 0.
struct SoftmaxExponent {
  float factor, scale;  // factor = scale * log2(e)
  template <class Thread>
  MH_DEVICE float log2_numerator(const Thread&, float product) const {
    return product * factor;
  }
  template <class Thread>
  MH_DEVICE float multiply_slope(const Thread&, float x, float, float) const {
    return x * scale;
  }
};
struct SigsoftmaxExponent {
  float scale;
  template <class Thread>
  MH_DEVICE float log2_numerator(const Thread& thread, float product) const {
    const float x = product * scale, magnitude = x < 0 ? -x : x;
    return ((x < 0 ? 2 * x : x) - thread.log1p(thread.exp2(-magnitude * kLog2E))) * kLog2E;
  }
  template <class Thread>
  MH_DEVICE float multiply_slope(const Thread& thread, float x, float probability, float product) const {
    return probability > 0 ? x * scale * (2 - 1 / (1 + thread.exp2(-product * scale * kLog2E))) : 0;
  }
};

// Calls work(normaliser) with the normaliser of `params`, a SoftmaxExponent or SigsoftmaxExponent, so that loops over
// elements have no branch. With kLogitTerms the normaliser takes logits in place of products.
template <bool kLogitTerms = false, class Work>
MH_DEVICE void dispatch_normaliser(const AttentionParams& params, const Work& work) {
  if (params.normaliser == Normaliser::softmax)
    work(kLogitTerms ? SoftmaxExponent{kLog2E, 1} : SoftmaxExponent{params.scale * kLog2E, params.scale});
  else work(SigsoftmaxExponent{kLogitTerms ? 1 : params.scale});
}

// Returns the index in the random stream of the element that decides whether dropout drops the probability of a query
// and a key in head `head` of batch row b.
MH_DEVICE uint64_t dropout_element_index(const AttentionParams& params, int64_t b, int64_t head, int query, int key) {
  return params.dropout_offset +
         static_cast<uint64_t>(b * params.dropout_batch_stride + head * params.dropout_head_stride +
                               query * params.dropout_row_stride + key);
}

// Returns a word with one bit for each element of a lane's accumulators: bit 4 n + e for accum[n].x[e]. draw(c) returns
// bits c … c + kBitsPerDraw - 1 as the lowest bits of a word. The bits are packed into a word, since a rolled loop
// cannot index registers, and an unrolled loop would keep all random words live and spill.
template <int kColumnFragments, int kBitsPerDraw, class Draw>
MH_DEVICE uint32_t accumulator_bits(const Draw& draw) {
  static_assert(kColumnFragments <= 8);
  uint32_t bits = 0;
  MH_ROLLED
  for (int c = 0; c < 4 * kColumnFragments; c += kBitsPerDraw) bits |= draw(c) << c;
  return bits;
}
// Returns the dropout factor of the element of bit x in accumulator_bits(): `scale` if the bit is set, otherwise 0.
MH_DEVICE float dropout_factor(uint32_t bits, int x, float scale) { return (bits >> x & 1) != 0 ? scale : 0; }
// Multiplies a lane's accumulators by their dropout factors.
template <int kColumnFragments>
MH_DEVICE void apply_dropout_keep_bits(uint32_t bits, float scale, Accumulator (&accum)[kColumnFragments]) {
  MH_FOR (n, kColumnFragments)
    MH_FOR (e, 4) accum[n].x[e] *= dropout_factor(bits, 4 * n + e, scale);
}

// Applies dropout to the probabilities, or to the gradients of probabilities, in a lane's accumulators, whose rows are
// queries i and i + 8 and whose first column is key s: dropped elements become zero, the others are multiplied by
// 1 / (1 - p).
template <int kColumnFragments>
MH_DEVICE void apply_dropout(const AttentionParams& params, int64_t b, int64_t head, int i, int s,
                             Accumulator (&accum)[kColumnFragments]) {
  const uint32_t dropout_keep_bits = accumulator_bits<kColumnFragments, 2>([&](int c) {
    const uint64_t element = dropout_element_index(params, b, head, i + c / 2 % 2 * 8, s + c / 4 * 8);
    const auto word = static_cast<unsigned>(element % 4);
    PhiloxWords words = philox(params.dropout, element / 4);
    uint32_t bits = dropout_keeps(params.dropout, word_at(words, word));
    if (word == 3) words = philox(params.dropout, element / 4 + 1);
    return bits | uint32_t{dropout_keeps(params.dropout, word_at(words, (word + 1) % 4))} << 1;
  });
  apply_dropout_keep_bits(dropout_keep_bits, params.dropout.scale, accum);
}

// Returns the word of accumulator_bits() for a transposed tile, with bits set for the probabilities that are not
// dropped. A lane's first column is query i, and its rows are keys s and s + 8; if kByDistance, the rows are distances,
// and in the column of query t these are the distances of the keys t + s and t + s + 8.
template <int kColumnFragments, bool kByDistance = false>
MH_DEVICE uint32_t dropout_keep_bits_transposed(const AttentionParams& params, int64_t b, int64_t head, int i, int s) {
  return accumulator_bits<kColumnFragments, 1>([&](int c) {
    const int query = i + c / 4 * 8 + c % 2;
    const uint64_t element =
        dropout_element_index(params, b, head, query, s + c / 2 % 2 * 8 + (kByDistance ? query : 0));
    return uint32_t{dropout_keeps(params.dropout,
                                  word_at(philox(params.dropout, element / 4), static_cast<unsigned>(element % 4)))};
  });
}

}  // namespace mh::kernels
