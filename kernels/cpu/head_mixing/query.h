// The softmax, dropout and mixing steps of head-mixing attention on a CPU, for one query and all heads. Softmax loops
// over the logits of one head in vectors of 16; mixing loops over chunks of 128 keys of all heads, 8 KiB for 16 heads
// (cpu/head_mix_chunk.h).
#pragma once

#include <cmath>

#include "cpu/head_mixing/products.h"
#include "cpu/sigsoftmax.h"

namespace mh::kernels {

namespace {

// One query and a span of keys.
struct Query {
  int64_t t, key_begin;  // index of the query; first key of the span
  // Range of keys that the query sees, [visible_begin, visible_end), counted from the first key of the span; may be
  // empty.
  int64_t visible_begin, visible_end;
  // Number of keys for which the tile has logits of this query, from the first key of the span on; logits of keys
  // outside the visible range are computed, but masked.
  int64_t num_keys;
  MH_INLINE Query(const AttentionParams& params, int64_t query, int64_t key, int64_t keys)
      : t(query),
        key_begin(key),
        visible_begin(std::max<int64_t>(0, params.visible_begin(query) - key)),
        visible_end(std::clamp<int64_t>(params.visible_end(query) - key, 0, keys)),
        num_keys(keys) {}
};

// Sets the elements of one head of one query to `value` for the keys before `first`, which are masked.
void fill_keys_before(const TileLayout& layout, int64_t first, float value, float* x) {
  for (int64_t s = 0, n = 0; s < first; s += n) {
    n = num_contiguous_keys(s, first);
    std::fill_n(x + key_offset(layout, s), n, value);
  }
}

// Applies sigsoftmax_logits() to the `num_keys` logits x of one head of one query.
void sigsoftmax_head(const TileLayout& layout, int64_t num_keys, float* x, float* slopes) {
  for (int64_t c = 0; c * kChunkKeys < num_keys; ++c)
    sigsoftmax_logits(x + c * layout.chunk_stride(), pad_to_lanes(std::min(kChunkKeys, num_keys - c * kChunkKeys)),
                      slopes != nullptr ? slopes + c * layout.chunk_stride() : nullptr);
}

// Applies the soft cap to the `num_keys` logits x of one head of one query.
void cap_head(const AttentionParams& params, const TileLayout& layout, int64_t num_keys, float* x, float* slopes) {
  for (int64_t c = 0; c * kChunkKeys < num_keys; ++c)
    cap_logits(params.soft_cap, std::min(kChunkKeys, num_keys - c * kChunkKeys), x + c * layout.chunk_stride(),
               slopes != nullptr ? slopes + c * layout.chunk_stride() : nullptr);
}

// Calls visit(offset, count, column) for pieces of the keys that a query sees: the elements of a head of the tile from
// `offset` on belong to `count` keys, whose position biases begin at `column`.
template <class Visit>
MH_INLINE void for_each_bias_piece(const AttentionParams& params, const TileLayout& layout, const Query& q,
                                   const Visit& visit) {
  for_each_bias_range(params, q.t, q.key_begin + q.visible_begin, q.key_begin + q.visible_end,
                      [&](int64_t key, int64_t count, int64_t column) {
                        const int64_t first = key - q.key_begin, end = first + count;
                        for (int64_t s = first, n = 0; s < end; s += n) {
                          n = num_contiguous_keys(s, end);
                          visit(key_offset(layout, s), n, column + s - first);
                        }
                      });
}

// Derivatives of the logits of one query, in the layout of one query of a tile: of sigsoftmax_logits() and of the soft
// cap. Null: not computed.
struct LogitSlopes {
  float *sigsoftmax = nullptr, *cap = nullptr;
};

// Turns the logits x of query head j of one query into the logits of the softmax: applies the soft cap, adds the
// position bias, and applies sigsoftmax_logits(), each only if the parameters select it.
void finish_logits(const AttentionParams& params, const TileLayout& layout, const Query& q, int64_t j, float* x,
                   const LogitSlopes& slopes) {
  const auto of_head = [&](float* query_slopes) {
    return query_slopes != nullptr ? query_slopes + j * kChunkKeys : nullptr;
  };
  if (params.soft_cap > 0) cap_head(params, layout, q.num_keys, x, of_head(slopes.cap));
  if (params.has_position_bias()) {
    const float* bias = position_bias_row(params, j);
    for_each_bias_piece(params, layout, q, [&](int64_t offset, int64_t count, int64_t column) {
      add_to(bias + column, count, x + offset);
    });
  }
  if (params.normaliser == Normaliser::sigsoftmax) sigsoftmax_head(layout, q.num_keys, x, of_head(slopes.sigsoftmax));
}

// Returns the maximum of the first `visible_end` logits of one head of one query; -inf if visible_end is 0.
float head_maximum(const TileLayout& layout, const float* x, int64_t visible_end) {
  float maximum = -INFINITY;
  for (int64_t c = 0; c * kChunkKeys < visible_end; ++c)
    maximum = std::max(
        maximum, max_visible_logit(x + c * layout.chunk_stride(), std::min(kChunkKeys, visible_end - c * kChunkKeys)));
  return maximum;
}
// Replaces the first `visible_end` of the `num_keys` logits of one head of one query by exp(x - maximum), and the other
// logits, of masked keys, by 0. Returns the sum of the exponentials.
float exponentiate_head(const TileLayout& layout, float* x, int64_t visible_end, int64_t num_keys, float maximum) {
  float sum = 0;
  for (int64_t c = 0; c * kChunkKeys < num_keys; ++c) {
    const int64_t visible_count = std::clamp<int64_t>(visible_end - c * kChunkKeys, 0, kChunkKeys);
    sum += exponentiate_row(x + c * layout.chunk_stride(), visible_count,
                            pad_to_lanes(std::min(kChunkKeys, num_keys - c * kChunkKeys)), maximum);
  }
  return sum;
}

// Returns whether the first `visible_end` logits of one head of one query are all -inf.
bool is_head_masked(const TileLayout& layout, const float* x, int64_t visible_end) {
  for (int64_t c = 0; c * kChunkKeys < visible_end; ++c)
    if (!all_masked(x + c * layout.chunk_stride(), std::min(kChunkKeys, visible_end - c * kChunkKeys))) return false;
  return true;
}

// Computes `dropout_mask` (heads, layout.dropout_mask_stride()), the factors 1 / (1 - p) or 0 of one query and the
// first q.visible_end keys of a span, for the query heads if dropout precedes mixing, and otherwise for the value
// heads. The factor of key 0 is element kDropoutGroupSize of the row of a head.
void dropout_mask_of_query(const AttentionParams& params, const TileLayout& layout, const Query& q,
                           float* dropout_mask) {
  const int64_t heads = params.dropout_before_mixing ? params.heads : params.value_heads;
  for (int64_t h = 0; h < heads; ++h)
    dropout_mask_range(params.dropout,
                       params.dropout_offset + static_cast<uint64_t>(h * params.dropout_head_stride +
                                                                     q.t * params.dropout_row_stride + q.key_begin),
                       q.visible_end, dropout_mask + h * layout.dropout_mask_stride() + kDropoutGroupSize);
}

// Computes y (heads, kChunkKeys) = x (heads, kChunkKeys) times the dropout mask of chunk c, for the first `count` keys.
// The keys from `count` to the next multiple of 16, which are masked, become 0.
void apply_dropout(const TileLayout& layout, int64_t heads, int64_t c, int64_t count, const float* dropout_mask,
                   const float* x, float* y) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < count; s += lanes) {
      Floats factors, v;
      load(dropout_mask + h * layout.dropout_mask_stride() + kDropoutGroupSize + c * kChunkKeys + s, factors);
      load(x + h * kChunkKeys + s, v);
      replace_tail(count - s, 0, factors);
      store(apply_dropout_mask(factors, v), y + h * kChunkKeys + s);
    }
}

MH_INLINE void copy_chunk(int64_t heads, int64_t count, const float* from, float* to) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < count; s += lanes) {
      Floats v;
      load(from + h * kChunkKeys + s, v);
      store(v, to + h * kChunkKeys + s);
    }
}

// Computes y *= x elementwise for the first `num_keys` keys of one query and all query heads. x and y have the layout
// of one query of a tile.
void multiply_query(const AttentionParams& params, const TileLayout& layout, int64_t num_keys, const float* x,
                    float* y) {
  for (int64_t c = 0; c * kChunkKeys < num_keys; ++c)
    for (int64_t j = 0; j < params.heads; ++j) {
      const int64_t offset = c * layout.chunk_stride() + j * kChunkKeys;
      multiply_by(x + offset, std::min(kChunkKeys, num_keys - c * kChunkKeys), y + offset);
    }
}

// Applies finish_logits() and one step of the online softmax (Milakov and Gimelshein 2018) to a query: replaces its
// logits x in a span by exp(x - max_logits[j]) for each query head j, and the logits of masked keys by 0, and updates
// max_logits (h), the running maxima, and `sums` (h), the running sums of exponentials.
void online_softmax_query(const AttentionParams& params, const TileLayout& layout, const Query& q, float* x,
                          float* max_logits, float* sums) {
  for (int64_t j = 0; j < params.heads; ++j) {
    float* head_elements = x + j * kChunkKeys;
    finish_logits(params, layout, q, j, head_elements, {});
    const int64_t visible_end = q.visible_end > q.visible_begin ? q.visible_end : 0;
    if (visible_end > 0) fill_keys_before(layout, q.visible_begin, -INFINITY, head_elements);
    const float previous_max = max_logits[j];
    max_logits[j] = std::max(previous_max, head_maximum(layout, head_elements, visible_end));
    if (max_logits[j] == -INFINITY && is_head_masked(layout, head_elements, visible_end)) {
      fill_keys_before(layout, q.num_keys, 0, head_elements);
      continue;
    }
    if (sums[j] != 0) sums[j] *= std::exp(previous_max - max_logits[j]);
    sums[j] += exponentiate_head(layout, head_elements, visible_end, q.num_keys, max_logits[j]);
    if (visible_end > 0) fill_keys_before(layout, q.visible_begin, 0, head_elements);
  }
}

// The offsets that exponentiate_query() subtracts from the logits of each query head: data[j * head_stride] for head j.
struct LogitOffsets {
  const float* data;
  int64_t head_stride;
};

// Applies finish_logits() to the logits x of a query, replaces each logit of query head j by exp(x - offset), or by 0
// if the key is masked or the offset of head j is infinite (a fully masked row), and adds the sum of each head to
// `sums` (h). offsets: maxima, or log-sum-exps.
void exponentiate_query(const AttentionParams& params, const TileLayout& layout, const Query& q, LogitOffsets offsets,
                        float* x, const LogitSlopes& slopes, float* sums) {
  for (int64_t j = 0; j < params.heads; ++j) {
    float* head_elements = x + j * kChunkKeys;
    finish_logits(params, layout, q, j, head_elements, slopes);
    const float offset = offsets.data[j * offsets.head_stride];
    const int64_t visible_begin = std::min(q.visible_begin, q.num_keys);
    fill_keys_before(layout, visible_begin, -INFINITY, head_elements);
    sums[j] += exponentiate_head(layout, head_elements, std::isinf(offset) ? 0 : q.visible_end, q.num_keys, offset);
    fill_keys_before(layout, visible_begin, 0, head_elements);
  }
}

// Returns 1 / `sum`, or 0 if `sum` is 0, as in a fully masked row.
MH_INLINE float inverse_or_zero(float sum) { return sum == 0 ? 0 : 1 / sum; }

// Computes `matrix` (h, hv) as `source` (h, hv) with row j divided by sums[j].
void divide_by_sums(const AttentionParams& params, const float* source, const float* sums, float* matrix) {
  for (int64_t j = 0; j < params.heads; ++j)
    for (int64_t i = 0; i < params.value_heads; ++i)
      matrix[j * params.value_heads + i] = source[j * params.value_heads + i] * inverse_or_zero(sums[j]);
}

// Replaces x, the exponentials of one query for all query heads, by the mixed probabilities after dropout for all value
// heads. matrix (h, hv): the mixing matrix, with rows divided by the sums of the exponentials. dropout_mask, mix_out:
// scratch.
void mix_query(const AttentionParams& params, const TileLayout& layout, const Query& q, const float* matrix, float* x,
               float* dropout_mask, float* mix_out) {
  const bool has_dropout = params.has_dropout();
  if (has_dropout) dropout_mask_of_query(params, layout, q, dropout_mask);
  for (int64_t c = 0; c * kChunkKeys < q.num_keys; ++c) {
    const int64_t chunk_keys = std::min(kChunkKeys, q.num_keys - c * kChunkKeys),
                  count = std::clamp<int64_t>(q.visible_end - c * kChunkKeys, 0, chunk_keys);
    float* x_chunk = x + c * layout.chunk_stride();
    if (has_dropout && params.dropout_before_mixing)
      apply_dropout(layout, params.heads, c, count, dropout_mask, x_chunk, x_chunk);
    mix_chunk(params.heads, params.value_heads, {matrix, 1, params.value_heads}, x_chunk, chunk_keys, mix_out);
    copy_chunk(params.value_heads, chunk_keys, mix_out, x_chunk);
    if (has_dropout && !params.dropout_before_mixing)
      apply_dropout(layout, params.value_heads, c, count, dropout_mask, mix_out, x_chunk);
  }
}

// Applies dropout after mixing to gradients: replaces dp, the gradients of a query's mixed probabilities after dropout,
// by the gradients before dropout.
void dropout_query_backward(const AttentionParams& params, const TileLayout& layout, const Query& q,
                            const float* dropout_mask, float* dp) {
  for (int64_t c = 0; c * kChunkKeys < q.num_keys; ++c) {
    float* dy = dp + c * layout.chunk_stride();
    apply_dropout(layout, params.value_heads, c, std::clamp<int64_t>(q.visible_end - c * kChunkKeys, 0, kChunkKeys),
                  dropout_mask, dy, dy);
  }
}

// The elements of one query in the two tiles of the backward pass, and its dropout mask. p, for all query heads:
// probabilities before the division by their sums. dp, for all value heads: gradients of mixed probabilities.
struct QueryElements {
  float *p, *dp;
  const float* dropout_mask;
};
// Scratch of the backward pass of one query: lane_sums (h, hv, 16), dropout_out (max_heads, kChunkKeys),
// scaled_matrix (h, hv), mix_out (max_heads, kChunkKeys).
struct MixScratch {
  float *lane_sums, *dropout_out, *scaled_matrix, *mix_out;
};

// Computes g (h, hv) += Σ_s P_j dP̄_i, the sum over the keys s of a span, for one query. P_j includes dropout before
// mixing, and is not divided by its sum.
void accumulate_g(const AttentionParams& params, const TileLayout& layout, const Query& q,
                  const QueryElements& elements, const MixScratch& scratch, float* g) {
  const int64_t num_head_pairs = params.heads * params.value_heads;
  const bool dropout_before_mixing = params.has_dropout() && params.dropout_before_mixing;
  std::fill_n(scratch.lane_sums, num_head_pairs * lanes, 0.0F);
  for (int64_t c = 0; c * kChunkKeys < q.num_keys; ++c) {
    const int64_t chunk_keys = std::min(kChunkKeys, q.num_keys - c * kChunkKeys),
                  count = std::clamp<int64_t>(q.visible_end - c * kChunkKeys, 0, chunk_keys);
    const float* x = elements.p + c * layout.chunk_stride();
    if (dropout_before_mixing) {
      copy_chunk(params.heads, chunk_keys, x, scratch.dropout_out);
      apply_dropout(layout, params.heads, c, count, elements.dropout_mask, x, scratch.dropout_out);
      x = scratch.dropout_out;
    }
    outer_product_chunk(params.heads, params.value_heads, x, elements.dp + c * layout.chunk_stride(), count,
                        scratch.lane_sums);
  }
  for (int64_t i = 0; i < num_head_pairs; ++i) {
    Floats sum;
    load(scratch.lane_sums + i * lanes, sum);
    g[i] += sum_of(sum);
  }
}

// For one query and a span, replaces elements.p by the mixed probabilities after dropout, for all value heads, and
// elements.dp by the gradients of the logits, for all query heads. sums (h): sums of p over all keys; g (h, hv): G
// over all keys, divided by the sums.
void mix_query_backward(const AttentionParams& params, const TileLayout& layout, const Query& q,
                        const QueryElements& elements, const MixScratch& scratch, const float* sums, const float* g) {
  const int64_t heads = params.heads, value_heads = params.value_heads;
  const float* const matrix = params.mixing_matrix + q.t * params.matrix_query_stride;
  const float* const dropout_mask = elements.dropout_mask;
  float *const scaled_matrix = scratch.scaled_matrix, *const mix_out = scratch.mix_out;
  divide_by_sums(params, matrix, sums, scaled_matrix);
  const bool dropout_before_mixing = params.has_dropout() && params.dropout_before_mixing;
  const bool dropout_after_mixing = params.has_dropout() && !params.dropout_before_mixing;
  for (int64_t c = 0; c * kChunkKeys < q.num_keys; ++c) {
    const int64_t chunk_keys = std::min(kChunkKeys, q.num_keys - c * kChunkKeys),
                  count = std::clamp<int64_t>(q.visible_end - c * kChunkKeys, 0, chunk_keys);
    float *x = elements.p + c * layout.chunk_stride(), *dy = elements.dp + c * layout.chunk_stride();
    // mix_out: dP_j, the gradients of the probabilities.
    mix_chunk(value_heads, heads, {matrix, value_heads, 1}, dy, chunk_keys, mix_out);
    if (dropout_before_mixing) apply_dropout(layout, heads, c, count, dropout_mask, mix_out, mix_out);
    for (int64_t j = 0; j < heads; ++j) {
      float delta = 0;
      const float factor = inverse_or_zero(sums[j]);
      for (int64_t i = 0; i < value_heads; ++i) delta += matrix[j * value_heads + i] * g[j * value_heads + i];
      for (int64_t s = 0; s < chunk_keys; s += lanes) {
        Floats a, b;
        load(x + j * kChunkKeys + s, a);
        load(mix_out + j * kChunkKeys + s, b);
        b = factor * a * (b - delta);
        store(b, dy + j * kChunkKeys + s);
      }
    }
    if (dropout_before_mixing) apply_dropout(layout, heads, c, count, dropout_mask, x, x);
    mix_chunk(heads, value_heads, {scaled_matrix, 1, value_heads}, x, chunk_keys, mix_out);
    copy_chunk(value_heads, chunk_keys, mix_out, x);
    if (dropout_after_mixing) apply_dropout(layout, value_heads, c, count, dropout_mask, mix_out, x);
  }
}

}  // namespace

}  // namespace mh::kernels
