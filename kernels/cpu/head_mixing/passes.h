// Forward and backward pass of head mixing on a CPU, over tiles of queries.
#pragma once

#include "cpu/head_mixing/decode.h"

namespace mh::kernels {

namespace {

// Returns the query tile that a part computes in round `round`. The order of the parts alternates from round to round,
// which balances their work: under a causal mask later tiles have more keys.
MH_INLINE int64_t tile_of(const QueryPart& part, int64_t round) {
  return round * part.count + (round % 2 == 0 ? part.index : part.count - 1 - part.index);
}

// Packs the rows of a tile of queries, of all heads of `from`, as left operands: in fp32 (heads, l.rows, padded size),
// scaled by of.factor; or in bf16, not scaled, as take_rows() does. paired: for bf16, packs right operands also.
template <class T>
void take_tile(const AttentionParams& params, const Layout& l, const TileRows& of, Heads<const T> from,
               const Queries& queries, bool paired, float* rows) {
  if (uses_bf16_gemm(params)) return take_rows(l, of, from, queries, paired, rows);
  for (int64_t j = 0; j < of.heads; ++j)
    unpack_rows(from.at(j, queries.first), from.row_stride, queries.count, of.size, of.factor, l.rows,
                rows + j * l.rows * padded(of.size));
}

TileRows query_rows(const AttentionParams& params) { return {params.in_heads, params.key_size, params.scale}; }
TileRows result_rows(const AttentionParams& params) { return {params.out_heads, params.value_size, 1}; }

// Computes the products of a tile's packed queries with the visible keys, or of its packed output gradients with the
// visible values.
void with_keys(const AttentionParams& params, const Layout& l, const TileRows& of, const VisibleKeys& visible,
               const float* rows, const float* transposed, float* tile) {
  if (uses_bf16_gemm(params)) gemm_with_keys(*params.bf16, l, of, visible, rows, transposed, tile);
  else products_with_keys(l, of, visible, rows, transposed, tile);
}

// Computes the logits of a tile from its packed queries `rows`, including relative positions.
void logits_of(const AttentionParams& params, const Layout& l, const VisibleKeys& visible, const float* rows,
               const float* transposed_k, const DistanceScratch& distances, float* tile) {
  with_keys(params, l, query_rows(params), visible, rows, transposed_k, tile);
  if (params.has_relative()) add_distances(params, l, visible, distances, tile);
}

// One head of a tile, and scratch to round it to a bf16 operand, 64 keys of all queries at a time.
struct HeadTile {
  const float* numbers;
  uint16_t* rounded;
};

// Computes sums (rows, wide) += tile (rows, keys) · right (keys, wide) for one head; right: packed fp32 or bf16.
void add_over_keys(const AttentionParams& params, const Layout& l, const VisibleKeys& visible, int64_t padded_size,
                   const HeadTile& tile, const float* right, float* sums) {
  if (!uses_bf16_gemm(params)) return product_over_keys(l, visible, padded_size, tile.numbers, right, sums);
  gemm_tile(*params.bf16, l, visible, tile.numbers, tile.rounded)
      .over_keys(reinterpret_cast<const uint16_t*>(right), l.keys(), padded_size, sums);
}
// Computes sums (keys, wide) += tileᵀ (keys, l.rows) · rows (l.rows, wide) for one head. rows: packed by take_tile(),
// in bf16 with paired right operands.
void add_over_queries(const AttentionParams& params, const Layout& l, const VisibleKeys& visible, int64_t padded_size,
                      const HeadTile& tile, const float* rows, float* sums) {
  if (!uses_bf16_gemm(params)) return product_over_queries(l, visible, padded_size, tile.numbers, rows, sums);
  gemm_tile(*params.bf16, l, visible, tile.numbers, tile.rounded)
      .over_queries(reinterpret_cast<const uint16_t*>(rows) + l.rows * padded_size, padded_size, sums);
}

// Computes to (heads, count, size) = of.factor * sums (heads, l.rows, padded size), for the `count` queries of a tile.
template <class T>
void write_rows(const Layout& l, const TileRows& of, const Queries& queries, const float* sums, Heads<T> to) {
  for (int64_t h = 0; h < of.heads; ++h)
    for (int64_t r = 0; r < queries.count; ++r)
      for (int64_t s = 0; s < of.size; s += lanes) {
        Floats sum;
        load(sums + (h * l.rows + r) * padded(of.size) + s, sum);
        sum = sum * of.factor;
        store_partial(sum, of.size - s, to.at(h, queries.first + r) + s);
      }
}

}  // namespace

template <Level L, class T>
void HeadMixingLoops<L, T>::forward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& tensors,
                                    float* scratch) {
  float* const lse = tensors.lse;
  if (is_decode(params)) {
    if (part.index != 0) return;
    for (int64_t j = 0; j < params.in_heads; ++j) decode_logits(params, j, tensors.q, tensors.k, scratch);
    decode_mix(params, lse, scratch);
    for (int64_t i = 0; i < params.out_heads; ++i) decode_values(params, i, tensors.v, tensors.out, scratch);
    return;
  }
  const Layout l(params, tile_size(params));
  const Packed<const float> from(params, false, tensors.packed);
  float* tile = scratch;
  float* rows = tile + l.tile();                                      // packed queries (in, rows, dk)
  float* values = rows + params.in_heads * l.rows * l.dk;             // sums of the outputs (out, rows, dv)
  float* mixed = values + params.out_heads * l.rows * l.dv;           // scratch of mix_query() (heads, chunk)
  float* matrix = mixed + l.heads * chunk;                            // mixing matrix of one query (in, out)
  float* tops = matrix + padded(params.in_heads * params.out_heads);  // (rows, in): maximum logits
  float* sums = tops + l.rows * params.in_heads;                      // (rows, in): sums of exponentials
  float* unused = sums + l.rows * params.in_heads;                    // (in): sums that are not needed again
  float* dropout_mask = unused + padded(params.in_heads);
  float* positions = dropout_mask + decisions_scratch(params, l);
  const DistanceScratch distances{positions, positions + params.in_heads * l.rows * l.dk};
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // bf16; never with relative positions
  const bool once = l.span >= params.keys;
  for (int64_t round = 0; round * part.count * l.rows < params.queries; ++round) {
    const int64_t first = tile_of(part, round) * l.rows, count = std::min(l.rows, params.queries - first);
    if (count <= 0) continue;
    const Queries queries{first, count};
    take_tile(params, l, query_rows(params), tensors.q, queries, false, rows);
    if (params.has_relative()) add_relative_biases(params, l, count, rows, positions);
    std::fill_n(tops, l.rows * params.in_heads, -INFINITY), std::fill_n(sums, l.rows * params.in_heads, 0.0F);
    std::fill_n(values, params.out_heads * l.rows * l.dv, 0.0F);
    const int64_t from_key = params.visible_begin(first) / l.span * l.span, end = params.visible_end(first + count - 1);
    for (int64_t key = from_key; key < end; key += l.span) {
      const VisibleKeys visible(params, l, queries, key);
      logits_of(params, l, visible, rows, from.transposed_k, distances, tile);
      for (int64_t i = 0; i < count; ++i)
        online_softmax_query(params, l, {params, first + i, key, visible.reach(i)}, tile + i * l.query(),
                             tops + i * params.in_heads, sums + i * params.in_heads);
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < params.in_heads; ++j)
        lse[j * params.queries + first + i] = log_sum(tops[i * params.in_heads + j], sums[i * params.in_heads + j]);
    for (int64_t key = from_key; key < end; key += l.span) {
      const VisibleKeys visible(params, l, queries, key);
      if (!once) logits_of(params, l, visible, rows, from.transposed_k, distances, tile);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(params, first + i, key, visible.reach(i));
        float* x = tile + i * l.query();
        if (!once) exponentials_of(params, l, query, {tops + i * params.in_heads, 1}, x, nullptr, unused);
        divide_by_sums(params, params.matrix + query.t * params.matrix_query_stride, sums + i * params.in_heads,
                       matrix);
        mix_query(params, l, query, matrix, x, dropout_mask, mixed);
      }
      for (int64_t i = 0; i < params.out_heads; ++i)
        add_over_keys(params, l, visible, l.dv, {tile + i * chunk, rounded_tile}, from.values + i * l.keys() * l.dv,
                      values + i * l.rows * l.dv);
    }
    write_rows(l, result_rows(params), queries, values, tensors.out);
  }
}

template <Level L, class T>
void HeadMixingLoops<L, T>::backward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& tensors,
                                     float* scratch) {
  float *dk = tensors.dk, *dv = tensors.dv, *dm = tensors.dm;
  const float* const lse = tensors.lse;
  const bool by_query = params.matrix_query_stride != 0;
  const Layout l(params, tile_size(params));
  const int64_t numbers = params.in_heads * params.out_heads, of_tile = params.in_heads * l.rows * l.dk;
  const Packed<const float> from(params, true, tensors.packed);
  float* p = scratch;                                      // tile: logits, then probabilities
  float* d = p + l.tile();                                 // tile: dP̄, then gradients of the logits
  float* rows = d + l.tile();                              // packed queries (in, rows, dk)
  float* drows = rows + of_tile;                           // packed output gradients (out, rows, dv)
  float* sums = drows + params.out_heads * l.rows * l.dv;  // (in, rows, dk): query gradients from the keys
  float* dy = sums + of_tile;                              // (in, rows, dk): query gradients from the rows of r
  float* lane_sums = dy + of_tile;                         // (in, out, 16): partial sums of G
  float* g = lane_sums + numbers * lanes;                  // (rows, in, out): G
  float* dropped = g + l.rows * numbers;                   // (heads, chunk): probabilities after dropout
  float* mixed = dropped + l.heads * chunk;                // (heads, chunk): mixed probabilities or gradients
  float* prob_sums = mixed + l.heads * chunk;              // (rows, in): sums of probabilities
  float* scaled = prob_sums + l.rows * params.in_heads;    // (in, out): matrix divided by the sums
  float* unused = scaled + padded(numbers);                // (in): sums that are not needed again
  float* dropout_mask = unused + padded(params.in_heads);
  float* slopes = dropout_mask + decisions_scratch(params, l);  // derivatives of Sigsoftmax for one query (Layout)
  float* positions = slopes + l.query();
  const DistanceScratch distances{positions, positions + of_tile};
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // bf16; never with relative positions
  const MixScratch mixing{lane_sums, dropped, scaled, mixed};
  if (params.has_relative()) {
    std::fill_n(tensors.du, params.in_heads * l.dk, 0.0F), std::fill_n(tensors.dv_bias, params.in_heads * l.dk, 0.0F);
    std::fill_n(tensors.dr, params.in_heads * params.relative.distances * l.dk, 0.0F);
  }
  std::fill_n(dk, key_floats(params), 0.0F);
  std::fill_n(dv, value_floats(params), 0.0F);
  if (!by_query) std::fill_n(dm, numbers, 0.0F);
  for (int64_t round = 0; round * part.count * l.rows < params.queries; ++round) {
    const int64_t first = tile_of(part, round) * l.rows, count = std::min(l.rows, params.queries - first);
    if (count <= 0) continue;
    const Queries queries{first, count};
    take_tile(params, l, query_rows(params), tensors.q, queries, true, rows);
    take_tile(params, l, result_rows(params), tensors.dout, queries, true, drows);
    if (params.has_relative()) add_relative_biases(params, l, count, rows, positions);
    std::fill_n(sums, 2 * of_tile, 0.0F);
    std::fill_n(g, l.rows * numbers, 0.0F);
    std::fill_n(prob_sums, l.rows * params.in_heads, 0.0F);
    const auto over_span = [&](int64_t key, bool compute_g, bool compute_ds) {
      const VisibleKeys visible(params, l, queries, key);
      logits_of(params, l, visible, rows, from.transposed_k, distances, p);
      with_keys(params, l, result_rows(params), visible, drows, from.values, d);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(params, first + i, key, visible.reach(i));
        float *x = p + i * l.query(), *y = d + i * l.query();
        const QueryElements numbers_of{x, y, dropout_mask};
        float *of_heads = prob_sums + i * params.in_heads, *g_of_query = g + i * numbers;
        exponentials_of(params, l, query, {lse + query.t, params.queries}, x, compute_ds ? slopes : nullptr,
                        compute_g ? of_heads : unused);
        if (params.has_dropout()) dropout_mask_of_query(params, l, query, dropout_mask);
        if (params.has_dropout() && !params.dropout_before_mixing)
          dropout_query_backward(params, l, query, dropout_mask, y);
        if (compute_g) weigh_query(params, l, query, numbers_of, mixing, g_of_query);
        if (!compute_ds) continue;
        if (compute_g) divide_by_sums(params, g_of_query, of_heads, g_of_query);
        mix_query_backward(params, l, query, numbers_of, mixing, of_heads, g_of_query);
        if (params.normaliser == Normaliser::sigsoftmax)
          for (int64_t c = 0; c * chunk < query.width; ++c)
            multiply_chunk(params.in_heads, std::min(chunk, query.width - c * chunk), slopes + c * l.step(),
                           y + c * l.step());
      }
      if (!compute_ds) return;
      for (int64_t i = count; i < visible.queries; ++i)  // the padding rows of the tile have no gradient
        for (float* tile : {p, d}) std::fill_n(tile + i * l.query(), l.query(), 0.0F);
      for (int64_t j = 0; j < params.in_heads; ++j) {
        const int64_t at = j * l.keys() * l.dk, of_head = j * l.rows * l.dk;
        const HeadTile logits{d + j * chunk, rounded_tile};
        add_over_keys(params, l, visible, l.dk, logits, from.keys + at, sums + of_head);
        if (params.has_relative()) distances_backward(params, l, visible, j, distances, d, {tensors.dr, dy});
        add_over_queries(params, l, visible, l.dk, logits, rows + of_head, dk + at);
      }
      for (int64_t i = 0; i < params.out_heads; ++i)
        add_over_queries(params, l, visible, l.dv, {p + i * chunk, rounded_tile}, drows + i * l.rows * l.dv,
                         dv + i * l.keys() * l.dv);
    };
    const bool once = l.span >= params.keys;
    const int64_t from_key = params.visible_begin(first) / l.span * l.span, end = params.visible_end(first + count - 1);
    for (int64_t key = from_key; !once && key < end; key += l.span) over_span(key, true, false);
    for (int64_t i = 0; !once && i < count; ++i)
      divide_by_sums(params, g + i * numbers, prob_sums + i * params.in_heads, g + i * numbers);
    for (int64_t key = from_key; key < end; key += l.span) over_span(key, once, true);
    for (int64_t i = 0; i < count; ++i) {
      if (by_query)
        std::memcpy(dm + (first + i) * numbers, g + i * numbers, static_cast<size_t>(numbers) * sizeof(float));
      else
        for (int64_t n = 0; n < numbers; ++n) dm[n] += g[i * numbers + n];
    }
    if (params.has_relative()) {
      for (int64_t j = 0; j < params.in_heads; ++j) {
        add_rows(sums + j * l.rows * l.dk, count, l.dk, params.scale, tensors.du + j * l.dk);
        add_rows(dy + j * l.rows * l.dk, count, l.dk, params.scale, tensors.dv_bias + j * l.dk);
      }
      add_to(dy, of_tile, sums);
    }
    write_rows(l, query_rows(params), queries, sums, tensors.dq);
  }
  // bf16 queries are not scaled, since scaling would round them; the gradient of keys is scaled instead.
  if (uses_bf16_gemm(params)) scale_rows(params.scale, params.in_heads * l.keys(), l.dk, dk, l.dk);
}

template <Level L, class T>
void HeadMixingLoops<L, T>::gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size,
                                   Heads<T> to) {
  const int64_t padded_size = padded(size);
  for (int64_t r = 0; r < length; ++r)
    for (int64_t s = 0; s < size; s += lanes) {
      Floats sum;
      load(from + r * padded_size + s, sum);
      for (int64_t part = 1; part < parts; ++part) {
        Floats more;
        load(from + part * step + r * padded_size + s, more);
        sum += more;
      }
      store_partial(sum, size - s, to.at(0, r) + s);
    }
}

}  // namespace mh::kernels
