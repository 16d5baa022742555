// Forward and backward pass of head mixing on a CPU, over tiles of queries. cpu/head_mixing_attention.h describes the
// tiling and its memory.
#pragma once

#include "cpu/head_mixing/decode.h"

namespace mh::kernels {

namespace {

// Returns the index of the query tile that `share` computes in round `round`; may be past the last tile. The order of
// the shares alternates between rounds to balance their work: under a causal mask later tiles have more keys.
MH_INLINE int64_t query_tile_index(const QueryShare& share, int64_t round) {
  return round * share.count + (round % 2 == 0 ? share.index : share.count - 1 - share.index);
}

// Packs the rows of a tile of queries, for all heads of `from`, as left operands: in fp32 (heads, layout.rows, padded
// size), scaled by row_spec.factor; or in bf16, not scaled, as pack_bf16_rows() does. packs_right_operands: whether to
// pack right operands, too, for bf16.
template <class T>
void pack_tile(const AttentionParams& params, const TileLayout& layout, const PackedRowSpec& row_spec,
               HeadsView<const T> from, const QueryRange& queries, bool packs_right_operands, float* packed_rows) {
  if (uses_bf16_gemm(params)) return pack_bf16_rows(layout, row_spec, from, queries, packs_right_operands, packed_rows);
  for (int64_t j = 0; j < row_spec.heads; ++j)
    pack_rows_fp32(from.at(j, queries.first), from.row_stride, queries.count, row_spec.size, row_spec.factor,
                   layout.rows, packed_rows + j * layout.rows * pad_to_lanes(row_spec.size));
}

PackedRowSpec query_row_spec(const AttentionParams& params) { return {params.heads, params.key_size, params.scale}; }
PackedRowSpec out_row_spec(const AttentionParams& params) { return {params.value_heads, params.value_size, 1}; }

// Computes `tile`: the scaled products of the packed queries of a tile with the visible keys, or the products of the
// packed output gradients of a tile with the visible values.
void multiply_rows(const AttentionParams& params, const TileLayout& layout, const PackedRowSpec& row_spec,
                   const VisibleKeys& visible_range, const float* packed_rows, const float* transposed_kv,
                   float* tile) {
  if (uses_bf16_gemm(params))
    multiply_rows_bf16(*params.bf16_gemm, layout, row_spec, visible_range, packed_rows, transposed_kv, tile);
  else multiply_rows_fp32(layout, row_spec, visible_range, packed_rows, transposed_kv, tile);
}

// Computes the logits of a tile from its packed queries `packed_rows`, including relative positions.
void compute_logits(const AttentionParams& params, const TileLayout& layout, const VisibleKeys& visible_range,
                    const float* packed_rows, const float* transposed_k, const DistanceScratch& distances,
                    float* tile) {
  multiply_rows(params, layout, query_row_spec(params), visible_range, packed_rows, transposed_k, tile);
  if (params.has_relative_positions()) add_position_term(params, layout, visible_range, distances, tile);
}

// One head of a tile, and scratch memory to round the elements of 64 keys and all queries to a bf16 operand.
struct HeadTile {
  const float* elements;
  uint16_t* bf16_tile;
};

// Computes `sums` (rows, padded_size) += tile (rows, keys) · `right` (keys, padded_size) for one head. `right` is
// packed, in fp32 or bf16.
void add_tile_product(const AttentionParams& params, const TileLayout& layout, const VisibleKeys& visible_range,
                      int64_t padded_size, const HeadTile& tile, const float* right, float* sums) {
  if (!uses_bf16_gemm(params)) return product_over_keys(layout, visible_range, padded_size, tile.elements, right, sums);
  gemm_tile(*params.bf16_gemm, layout, visible_range, tile.elements, tile.bf16_tile)
      .add_product(reinterpret_cast<const uint16_t*>(right), layout.padded_keys(), padded_size, sums);
}
// Computes `sums` (keys, padded_size) += tileᵀ (keys, layout.rows) · packed_rows (layout.rows, padded_size) for one
// head. `packed_rows`: output of pack_tile(), in its layout for the right operand of a product.
void add_transposed_tile_product(const AttentionParams& params, const TileLayout& layout,
                                 const VisibleKeys& visible_range, int64_t padded_size, const HeadTile& tile,
                                 const float* packed_rows, float* sums) {
  if (!uses_bf16_gemm(params))
    return product_over_queries(layout, visible_range, padded_size, tile.elements, packed_rows, sums);
  gemm_tile(*params.bf16_gemm, layout, visible_range, tile.elements, tile.bf16_tile)
      .add_transposed_product(reinterpret_cast<const uint16_t*>(packed_rows) + layout.rows * padded_size, padded_size,
                              sums);
}

// Computes `to` (heads, count, size) = row_spec.factor * `sums` (heads, layout.rows, padded size), for the `count`
// queries of a tile.
template <class T>
void store_rows(const TileLayout& layout, const PackedRowSpec& row_spec, const QueryRange& queries, const float* sums,
                HeadsView<T> to) {
  for (int64_t h = 0; h < row_spec.heads; ++h)
    for (int64_t r = 0; r < queries.count; ++r)
      for (int64_t s = 0; s < row_spec.size; s += lanes) {
        Floats sum;
        load(sums + (h * layout.rows + r) * pad_to_lanes(row_spec.size) + s, sum);
        sum = sum * row_spec.factor;
        store_partial(sum, row_spec.size - s, to.at(h, queries.first + r) + s);
      }
}

// Returns the probability of the sink of head j for a query with the log-sum-exp `lse`; 0 for a fully masked row.
float sink_probability(const AttentionParams& params, int64_t j, float lse) {
  const float* sink = sink_of(params, j);
  return sink != nullptr ? std::exp(*sink - lse) : 0;
}

// For the queries of a tile: log-sum-exps (h, queries of the batch row); sums of the recomputed probabilities,
// including the sink (rows, h); and G, divided by these sums (rows, h, hv).
struct TileSums {
  const float *lse, *prob_sums, *g;
};

// Adds the gradients of the sinks from the queries of a tile to dsinks (h). The derivative of a probability P with
// respect to the sink of its head is -P times the sink's probability, and Σ_s P dP = Σ_i m[j, i] G[j, i].
void add_sink_gradients(const AttentionParams& params, const QueryRange& queries, const TileSums& sums, float* dsinks) {
  for (int64_t j = 0; j < params.heads; ++j) {
    double gradient = 0;
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t t = queries.first + i, n = i * params.heads + j;
      const float* matrix = params.mixing_matrix + t * params.matrix_query_stride;
      float delta = 0;
      for (int64_t o = 0; o < params.value_heads; ++o)
        delta += matrix[j * params.value_heads + o] * sums.g[n * params.value_heads + o];
      gradient -=
          sink_probability(params, j, sums.lse[j * params.queries + t]) * inverse_or_zero(sums.prob_sums[n]) * delta;
    }
    dsinks[j] += static_cast<float>(gradient);
  }
}

}  // namespace

template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::forward(const AttentionParams& params, const QueryShare& share,
                                    const BatchRowTensors<T>& tensors, float* scratch) {
  float* const lse = tensors.lse;
  if (is_decode(params)) {
    if (share.index != 0) return;
    for (int64_t j = 0; j < params.heads; ++j) decode_logits(params, j, tensors.q, tensors.k, scratch);
    decode_mix(params, lse, scratch);
    for (int64_t i = 0; i < params.value_heads; ++i) decode_values(params, i, tensors.v, tensors.out, scratch);
    return;
  }
  const TileLayout layout(params, tile_size(params));
  const PackedOperands<const float> operands(params, false, tensors.packed_kv);
  float* tile = scratch;
  float* packed_q = tile + layout.tile_floats();                        // packed queries (h, rows, dk)
  float* out_sums = packed_q + params.heads * layout.rows * layout.dk;  // sums of the outputs (hv, rows, dv)
  float* mix_out =
      out_sums + params.value_heads * layout.rows * layout.dv;  // scratch of mix_query() (max_heads, kChunkKeys)
  float* matrix = mix_out + layout.max_heads * kChunkKeys;      // mixing matrix of one query (h, hv)
  float* max_logits = matrix + pad_to_lanes(params.heads * params.value_heads);  // (rows, h): maximum logits
  float* sums = max_logits + layout.rows * params.heads;                         // (rows, h): sums of exponentials
  float* unused_sums = sums + layout.rows * params.heads;  // (h): output of exponentiate_query() that is not read
  float* dropout_mask = unused_sums + pad_to_lanes(params.heads);
  float* q_v = dropout_mask + dropout_mask_scratch_floats(params, layout);
  const DistanceScratch distances{q_v, q_v + params.heads * layout.rows * layout.dk};
  auto* bf16_tile = reinterpret_cast<uint16_t*>(q_v);  // shares the memory of q_v, since no call uses both
  const bool has_single_span = layout.span >= params.keys;
  for (int64_t round = 0; round * share.count * layout.rows < params.queries; ++round) {
    const int64_t first = query_tile_index(share, round) * layout.rows,
                  count = std::min(layout.rows, params.queries - first);
    if (count <= 0) continue;
    const QueryRange queries{first, count};
    pack_tile(params, layout, query_row_spec(params), tensors.q, queries, false, packed_q);
    if (params.has_relative_positions()) add_relative_biases(params, layout, count, packed_q, q_v);
    std::fill_n(max_logits, layout.rows * params.heads, -INFINITY), std::fill_n(sums, layout.rows * params.heads, 0.0F);
    std::fill_n(out_sums, params.value_heads * layout.rows * layout.dv, 0.0F);
    const int64_t key_begin = params.visible_begin(first) / layout.span * layout.span,
                  key_end = params.visible_end(first + count - 1);
    for (int64_t key = key_begin; key < key_end; key += layout.span) {
      const VisibleKeys visible_range(params, layout, queries, key);
      compute_logits(params, layout, visible_range, packed_q, operands.transposed_k, distances, tile);
      for (int64_t i = 0; i < count; ++i)
        online_softmax_query(params, layout, {params, first + i, key, visible_range.num_logits(i)},
                             tile + i * layout.query_stride(), max_logits + i * params.heads, sums + i * params.heads);
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < params.heads; ++j) {
        const int64_t n = i * params.heads + j;
        const RowSum row_sum = add_sink(sink_of(params, j), max_logits[n], sums[n]);
        lse[j * params.queries + first + i] = row_sum.lse, sums[n] = row_sum.sum;
      }
    for (int64_t key = key_begin; key < key_end; key += layout.span) {
      const VisibleKeys visible_range(params, layout, queries, key);
      if (!has_single_span)
        compute_logits(params, layout, visible_range, packed_q, operands.transposed_k, distances, tile);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(params, first + i, key, visible_range.num_logits(i));
        float* x = tile + i * layout.query_stride();
        if (!has_single_span)
          exponentiate_query(params, layout, query, {max_logits + i * params.heads, 1}, x, {}, unused_sums);
        divide_by_sums(params, params.mixing_matrix + query.t * params.matrix_query_stride, sums + i * params.heads,
                       matrix);
        mix_query(params, layout, query, matrix, x, dropout_mask, mix_out);
      }
      for (int64_t i = 0; i < params.value_heads; ++i)
        add_tile_product(params, layout, visible_range, layout.dv, {tile + i * kChunkKeys, bf16_tile},
                         operands.values + i * layout.padded_keys() * layout.dv,
                         out_sums + i * layout.rows * layout.dv);
    }
    store_rows(layout, out_row_spec(params), queries, out_sums, tensors.out);
  }
}

template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::backward(const AttentionParams& params, const QueryShare& share,
                                     const BatchRowTensors<T>& tensors, float* scratch) {
  float *dk = tensors.dk, *dv = tensors.dv, *dm = tensors.dm;
  const float* const lse = tensors.lse;
  const bool per_query_matrix = params.matrix_query_stride != 0;
  const TileLayout layout(params, tile_size(params));
  const int64_t num_head_pairs = params.heads * params.value_heads,
                query_floats = params.heads * layout.rows * layout.dk;
  const PackedOperands<const float> operands(params, true, tensors.packed_kv);
  float* p = scratch;                            // tile: logits, then probabilities, then P̄
  float* dp = p + layout.tile_floats();          // tile: dP̄, then gradients of the logits
  float* packed_q = dp + layout.tile_floats();   // packed queries (h, rows, dk)
  float* packed_dout = packed_q + query_floats;  // packed output gradients (hv, rows, dv)
  float* dq_sums =
      packed_dout + params.value_heads * layout.rows * layout.dv;  // (h, rows, dk): query gradients from the keys
  float* dq_v = dq_sums + query_floats;                   // (h, rows, dk): query gradients from the position term
  float* lane_sums = dq_v + query_floats;                 // (h, hv, 16): partial sums of G
  float* g = lane_sums + num_head_pairs * lanes;          // (rows, h, hv): G, the gradient of m
  float* dropout_out = g + layout.rows * num_head_pairs;  // (max_heads, kChunkKeys): probabilities after dropout
  float* mix_out =
      dropout_out + layout.max_heads * kChunkKeys;  // (max_heads, kChunkKeys): mixed probabilities or gradients
  float* prob_sums = mix_out + layout.max_heads * kChunkKeys;     // (rows, h): sums of probabilities
  float* scaled_matrix = prob_sums + layout.rows * params.heads;  // (h, hv): matrix divided by the sums
  float* unused_sums =
      scaled_matrix + pad_to_lanes(num_head_pairs);  // (h): output of exponentiate_query() that is not read
  float* dropout_mask = unused_sums + pad_to_lanes(params.heads);
  float* slopes_begin = dropout_mask + dropout_mask_scratch_floats(params, layout);
  const LogitSlopes slopes{slopes_begin, slopes_begin + layout.query_stride()};
  float* q_v = slopes_begin + slopes_scratch_floats(params, layout);
  const DistanceScratch distances{q_v, q_v + query_floats};
  auto* bf16_tile = reinterpret_cast<uint16_t*>(q_v);  // shares the memory of q_v, since no call uses both
  const MixScratch mixing{lane_sums, dropout_out, scaled_matrix, mix_out};
  if (params.has_relative_positions()) {
    std::fill_n(tensors.du, params.heads * layout.dk, 0.0F),
        std::fill_n(tensors.dv_bias, params.heads * layout.dk, 0.0F);
    std::fill_n(tensors.dr, params.heads * params.relative.num_distances * layout.dk, 0.0F);
  }
  if (tensors.dsinks != nullptr) std::fill_n(tensors.dsinks, params.heads, 0.0F);
  const int64_t num_bias_distances = params.position_bias.num_distances;
  if (tensors.dposition_bias != nullptr) std::fill_n(tensors.dposition_bias, params.heads * num_bias_distances, 0.0F);
  std::fill_n(dk, key_floats(params), 0.0F);
  std::fill_n(dv, value_floats(params), 0.0F);
  if (!per_query_matrix) std::fill_n(dm, num_head_pairs, 0.0F);
  for (int64_t round = 0; round * share.count * layout.rows < params.queries; ++round) {
    const int64_t first = query_tile_index(share, round) * layout.rows,
                  count = std::min(layout.rows, params.queries - first);
    if (count <= 0) continue;
    const QueryRange queries{first, count};
    pack_tile(params, layout, query_row_spec(params), tensors.q, queries, true, packed_q);
    pack_tile(params, layout, out_row_spec(params), tensors.dout, queries, true, packed_dout);
    if (params.has_relative_positions()) add_relative_biases(params, layout, count, packed_q, q_v);
    std::fill_n(dq_sums, 2 * query_floats, 0.0F);
    std::fill_n(g, layout.rows * num_head_pairs, 0.0F);
    for (int64_t i = 0; i < layout.rows; ++i)  // the sum of a query begins with the probability of its sink
      for (int64_t j = 0; j < params.heads; ++j)
        prob_sums[i * params.heads + j] =
            i < count ? sink_probability(params, j, lse[j * params.queries + first + i]) : 0;
    const auto process_span = [&](int64_t key, bool computes_g, bool computes_ds) {
      const VisibleKeys visible_range(params, layout, queries, key);
      compute_logits(params, layout, visible_range, packed_q, operands.transposed_k, distances, p);
      multiply_rows(params, layout, out_row_spec(params), visible_range, packed_dout, operands.values, dp);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(params, first + i, key, visible_range.num_logits(i));
        float *p_row = p + i * layout.query_stride(), *dp_row = dp + i * layout.query_stride();
        const QueryElements query_elements{p_row, dp_row, dropout_mask};
        float *query_prob_sums = prob_sums + i * params.heads, *query_g = g + i * num_head_pairs;
        exponentiate_query(params, layout, query, {lse + query.t, params.queries}, p_row,
                           computes_ds ? slopes : LogitSlopes{}, computes_g ? query_prob_sums : unused_sums);
        if (params.has_dropout()) dropout_mask_of_query(params, layout, query, dropout_mask);
        if (params.has_dropout() && !params.dropout_before_mixing)
          dropout_query_backward(params, layout, query, dropout_mask, dp_row);
        if (computes_g) accumulate_g(params, layout, query, query_elements, mixing, query_g);
        if (!computes_ds) continue;
        if (computes_g) divide_by_sums(params, query_g, query_prob_sums, query_g);
        mix_query_backward(params, layout, query, query_elements, mixing, query_prob_sums, query_g);
        if (params.normaliser == Normaliser::sigsoftmax)
          multiply_query(params, layout, query.num_keys, slopes.sigsoftmax, dp_row);
        for (int64_t j = 0; tensors.dposition_bias != nullptr && j < params.heads; ++j)
          for_each_bias_piece(params, layout, query, [&](int64_t offset, int64_t num_keys, int64_t column) {
            add_to(dp_row + j * kChunkKeys + offset, num_keys,
                   tensors.dposition_bias + j * num_bias_distances + column);
          });
        if (params.soft_cap > 0) multiply_query(params, layout, query.num_keys, slopes.cap, dp_row);
      }
      if (!computes_ds) return;
      for (int64_t i = count; i < visible_range.padded_queries; ++i)  // padding rows add nothing to gradients
        for (float* tile : {p, dp}) std::fill_n(tile + i * layout.query_stride(), layout.query_stride(), 0.0F);
      for (int64_t j = 0; j < params.heads; ++j) {
        const int64_t head_key_offset = j * layout.padded_keys() * layout.dk,
                      head_query_offset = j * layout.rows * layout.dk;
        const HeadTile dlogits{dp + j * kChunkKeys, bf16_tile};
        add_tile_product(params, layout, visible_range, layout.dk, dlogits, operands.keys + head_key_offset,
                         dq_sums + head_query_offset);
        if (params.has_relative_positions())
          position_term_backward(params, layout, visible_range, j, distances, dp, {tensors.dr, dq_v});
        add_transposed_tile_product(params, layout, visible_range, layout.dk, dlogits, packed_q + head_query_offset,
                                    dk + head_key_offset);
      }
      for (int64_t i = 0; i < params.value_heads; ++i)
        add_transposed_tile_product(params, layout, visible_range, layout.dv, {p + i * kChunkKeys, bf16_tile},
                                    packed_dout + i * layout.rows * layout.dv,
                                    dv + i * layout.padded_keys() * layout.dv);
    };
    const bool has_single_span = layout.span >= params.keys;
    const int64_t key_begin = params.visible_begin(first) / layout.span * layout.span,
                  key_end = params.visible_end(first + count - 1);
    for (int64_t key = key_begin; !has_single_span && key < key_end; key += layout.span) process_span(key, true, false);
    for (int64_t i = 0; !has_single_span && i < count; ++i)
      divide_by_sums(params, g + i * num_head_pairs, prob_sums + i * params.heads, g + i * num_head_pairs);
    for (int64_t key = key_begin; key < key_end; key += layout.span) process_span(key, has_single_span, true);
    if (tensors.dsinks != nullptr) add_sink_gradients(params, queries, {lse, prob_sums, g}, tensors.dsinks);
    for (int64_t i = 0; i < count; ++i) {
      if (per_query_matrix)
        std::memcpy(dm + (first + i) * num_head_pairs, g + i * num_head_pairs,
                    static_cast<size_t>(num_head_pairs) * sizeof(float));
      else
        for (int64_t n = 0; n < num_head_pairs; ++n) dm[n] += g[i * num_head_pairs + n];
    }
    if (params.has_relative_positions()) {
      for (int64_t j = 0; j < params.heads; ++j) {
        add_row_sum(dq_sums + j * layout.rows * layout.dk, count, layout.dk, params.scale, tensors.du + j * layout.dk);
        add_row_sum(dq_v + j * layout.rows * layout.dk, count, layout.dk, params.scale,
                    tensors.dv_bias + j * layout.dk);
      }
      add_to(dq_v, query_floats, dq_sums);
    }
    store_rows(layout, query_row_spec(params), queries, dq_sums, tensors.dq);
  }
  // bf16 queries are not scaled, since scaling would round them; the gradient of keys is scaled instead.
  if (uses_bf16_gemm(params)) scale_rows(params.scale, params.heads * layout.padded_keys(), layout.dk, dk, layout.dk);
}

template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::sum_partials(const float* from, int64_t num_partials, int64_t partial_stride,
                                         int64_t length, int64_t size, HeadsView<T> to) {
  const int64_t padded_size = pad_to_lanes(size);
  for (int64_t r = 0; r < length; ++r)
    for (int64_t s = 0; s < size; s += lanes) {
      Floats sum;
      load(from + r * padded_size + s, sum);
      for (int64_t i = 1; i < num_partials; ++i) {
        Floats partial;
        load(from + i * partial_stride + r * padded_size + s, partial);
        sum += partial;
      }
      store_partial(sum, size - s, to.at(0, r) + s);
    }
}

}  // namespace mh::kernels
