// Loops of mixed_attention.cpp: forward and backward, over tiles of queries.
#pragma once

#include "cpu/mixed/few.h"

namespace mh::kernels {

namespace {

// Tiles are dealt out back and forth: under a causal mask later ones are more work.
MH_INLINE int64_t tile_of(const QueryPart& part, int64_t round) {
  return round * part.count + (round % 2 == 0 ? part.index : part.count - 1 - part.index);
}

// Copies a tile of rows to `rows` as products read them: fp32 times factor, or an engine's operands.
template <class T>
void take_tile(const AttentionParams& how, const Layout& l, const TileRows& of, Heads<const T> from,
               const Queries& queries, bool paired, float* rows) {
  if (uses_engine(how)) return take_rows(l, of, from, queries, paired, rows);
  for (int64_t j = 0; j < of.heads; ++j)
    unpack_rows(from.at(j, queries.first), from.row_stride, queries.count, of.size, of.factor, l.rows,
                rows + j * l.rows * padded(of.size));
}

TileRows query_rows(const AttentionParams& how) { return {how.in_heads, how.key_size, how.scale}; }
TileRows result_rows(const AttentionParams& how) { return {how.out_heads, how.value_size, 1}; }

// The products of a tile's rows with all keys, or with all values.
void with_keys(const AttentionParams& how, const Layout& l, const TileRows& of, const Sight& sight, const float* rows,
               const float* turned, float* tile) {
  if (uses_engine(how)) engine_with_keys(*how.bf16, l, of, sight, rows, turned, tile);
  else products_with_keys(l, of, sight, rows, turned, tile);
}

// The logits of a tile, from its queries.
void logits_of(const AttentionParams& how, const Layout& l, const Sight& sight, const float* rows,
               const float* turned_k, const DistanceScratch& distances, float* tile) {
  with_keys(how, l, query_rows(how), sight, rows, turned_k, tile);
  if (how.has_relative()) add_distances(how, l, sight, distances, tile);
}

// One head of a tile, and what an engine rounds of it to (64 keys of all queries).
struct OneHead {
  const float* numbers;
  uint16_t* rounded;
};

// sums (rows, wide) += a tile of one head times right (keys, wide), or that as an engine's operand.
void add_over_keys(const AttentionParams& how, const Layout& l, const Sight& sight, int64_t wide, const OneHead& tile,
                   const float* right, float* sums) {
  if (!uses_engine(how)) return product_over_keys(l, sight, wide, tile.numbers, right, sums);
  engine_tile(*how.bf16, l, sight, tile.numbers, tile.rounded)
      .over_keys(reinterpret_cast<const uint16_t*>(right), l.keys(), wide, sums);
}
// sums (keys, wide) += a tile of one head, transposed, times rows (l.rows, wide), or their pairs, which follow them.
void add_over_queries(const AttentionParams& how, const Layout& l, const Sight& sight, int64_t wide,
                      const OneHead& tile, const float* rows, float* sums) {
  if (!uses_engine(how)) return product_over_queries(l, sight, wide, tile.numbers, rows, sums);
  engine_tile(*how.bf16, l, sight, tile.numbers, tile.rounded)
      .over_queries(reinterpret_cast<const uint16_t*>(rows) + l.rows * wide, wide, sums);
}

// to (heads, count, size) = factor * sums (heads, l.rows, padded size).
template <class T>
void write_rows(const Layout& l, const TileRows& of, const Queries& queries, const float* sums, Heads<T> to) {
  for (int64_t h = 0; h < of.heads; ++h)
    for (int64_t r = 0; r < queries.count; ++r)
      for (int64_t s = 0; s < of.size; s += lanes) {
        Floats sum;
        load(sums + (h * l.rows + r) * padded(of.size) + s, sum);
        sum = sum * of.factor;
        store_part(sum, of.size - s, to.at(h, queries.first + r) + s);
      }
}

}  // namespace

template <Level L, class T>
void MixedLoops<L, T>::forward(const AttentionParams& how, const QueryPart& part, const RowTensors<T>& tensors,
                               float* scratch) {
  float* const lse = tensors.lse;
  if (mixes_few(how)) {
    if (part.index != 0) return;
    for (int64_t j = 0; j < how.in_heads; ++j) few_logits(how, j, tensors.q, tensors.k, scratch);
    few_mix(how, lse, scratch);
    for (int64_t i = 0; i < how.out_heads; ++i) few_values(how, i, tensors.v, tensors.out, scratch);
    return;
  }
  const Layout l(how, tile_size(how));
  const Packed<const float> from(how, false, tensors.packed);
  float* tile = scratch;
  float* rows = tile + l.tile();                                // scaled queries (in, rows, dk)
  float* values = rows + how.in_heads * l.rows * l.dk;          // (out, rows, dv)
  float* mixed = values + how.out_heads * l.rows * l.dv;        // (heads, chunk)
  float* matrix = mixed + l.heads * chunk;                      // (in, out), for one query
  float* tops = matrix + padded(how.in_heads * how.out_heads);  // (rows, in)
  float* sums = tops + l.rows * how.in_heads;                   // (rows, in)
  float* unused = sums + l.rows * how.in_heads;                 // (in)
  float* keep = unused + padded(how.in_heads);
  float* positions = keep + decisions_scratch(how, l);
  const DistanceScratch distances{positions, positions + how.in_heads * l.rows * l.dk};
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // of an engine, which no distances are for
  const bool once = l.span >= how.keys;
  for (int64_t round = 0; round * part.count * l.rows < how.queries; ++round) {
    const int64_t first = tile_of(part, round) * l.rows, count = std::min(l.rows, how.queries - first);
    if (count <= 0) continue;
    const Queries queries{first, count};
    take_tile(how, l, query_rows(how), tensors.q, queries, false, rows);
    if (how.has_relative()) with_biases(how, l, count, rows, positions);
    std::fill_n(tops, l.rows * how.in_heads, -INFINITY), std::fill_n(sums, l.rows * how.in_heads, 0.0F);
    std::fill_n(values, how.out_heads * l.rows * l.dv, 0.0F);
    const int64_t from_key = how.first_seen(first) / l.span * l.span, end = how.seen(first + count - 1);
    for (int64_t key = from_key; key < end; key += l.span) {
      const Sight sight(how, l, queries, key);
      logits_of(how, l, sight, rows, from.turned_k, distances, tile);
      for (int64_t i = 0; i < count; ++i)
        soften_query(how, l, {how, first + i, key, sight.reach(i)}, tile + i * l.query(), tops + i * how.in_heads,
                     sums + i * how.in_heads);
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < how.in_heads; ++j)
        lse[j * how.queries + first + i] = log_sum(tops[i * how.in_heads + j], sums[i * how.in_heads + j]);
    for (int64_t key = from_key; key < end; key += l.span) {
      const Sight sight(how, l, queries, key);
      if (!once) logits_of(how, l, sight, rows, from.turned_k, distances, tile);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(how, first + i, key, sight.reach(i));
        float* x = tile + i * l.query();
        if (!once) exponentials_of(how, l, query, {tops + i * how.in_heads, 1}, x, nullptr, unused);
        with_sums(how, how.matrix + query.t * how.matrix_query_stride, sums + i * how.in_heads, matrix);
        mix_query(how, l, query, matrix, x, keep, mixed);
      }
      for (int64_t i = 0; i < how.out_heads; ++i)
        add_over_keys(how, l, sight, l.dv, {tile + i * chunk, rounded_tile}, from.values + i * l.keys() * l.dv,
                      values + i * l.rows * l.dv);
    }
    write_rows(l, result_rows(how), queries, values, tensors.out);
  }
}

template <Level L, class T>
void MixedLoops<L, T>::backward(const AttentionParams& how, const QueryPart& part, const RowTensors<T>& tensors,
                                float* scratch) {
  float *dk = tensors.dk, *dv = tensors.dv, *dm = tensors.dm;
  const float* const lse = tensors.lse;
  const bool by_query = how.matrix_query_stride != 0;
  const Layout l(how, tile_size(how));
  const int64_t numbers = how.in_heads * how.out_heads, of_tile = how.in_heads * l.rows * l.dk;
  const Packed<const float> from(how, true, tensors.packed);
  float* p = scratch;                                   // a tile
  float* d = p + l.tile();                              // a tile
  float* rows = d + l.tile();                           // scaled queries (in, rows, dk)
  float* drows = rows + of_tile;                        // (out, rows, dv)
  float* sums = drows + how.out_heads * l.rows * l.dv;  // (in, rows, dk), of keys
  float* dy = sums + of_tile;                           // (in, rows, dk), of distances
  float* of_lanes = dy + of_tile;                       // (in, out, 16)
  float* g = of_lanes + numbers * lanes;                // (rows, in, out)
  float* given = g + l.rows * numbers;                  // (heads, chunk)
  float* mixed = given + l.heads * chunk;               // (heads, chunk)
  float* of_query = mixed + l.heads * chunk;            // (rows, in): sums of probabilities
  float* scaled = of_query + l.rows * how.in_heads;     // (in, out)
  float* unused = scaled + padded(numbers);             // (in)
  float* keep = unused + padded(how.in_heads);
  float* slopes = keep + decisions_scratch(how, l);  // of Sigsoftmax, as a query of a tile
  float* positions = slopes + l.query();
  const DistanceScratch distances{positions, positions + of_tile};
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // of an engine, which no distances are for
  const MixScratch mixing{of_lanes, given, scaled, mixed};
  if (how.has_relative()) {
    std::fill_n(tensors.du, how.in_heads * l.dk, 0.0F), std::fill_n(tensors.dv_bias, how.in_heads * l.dk, 0.0F);
    std::fill_n(tensors.dr, how.in_heads * how.relative.distances * l.dk, 0.0F);
  }
  std::fill_n(dk, key_floats(how), 0.0F);
  std::fill_n(dv, value_floats(how), 0.0F);
  if (!by_query) std::fill_n(dm, numbers, 0.0F);
  for (int64_t round = 0; round * part.count * l.rows < how.queries; ++round) {
    const int64_t first = tile_of(part, round) * l.rows, count = std::min(l.rows, how.queries - first);
    if (count <= 0) continue;
    const Queries queries{first, count};
    take_tile(how, l, query_rows(how), tensors.q, queries, true, rows);
    take_tile(how, l, result_rows(how), tensors.dout, queries, true, drows);
    if (how.has_relative()) with_biases(how, l, count, rows, positions);
    std::fill_n(sums, 2 * of_tile, 0.0F);
    std::fill_n(g, l.rows * numbers, 0.0F);
    std::fill_n(of_query, l.rows * how.in_heads, 0.0F);
    const auto over_span = [&](int64_t key, bool weighs, bool unmixes) {
      const Sight sight(how, l, queries, key);
      logits_of(how, l, sight, rows, from.turned_k, distances, p);
      with_keys(how, l, result_rows(how), sight, drows, from.values, d);
      for (int64_t i = 0; i < count; ++i) {
        const Query query(how, first + i, key, sight.reach(i));
        float *x = p + i * l.query(), *y = d + i * l.query();
        const OneQuery numbers_of{x, y, keep};
        float *of_heads = of_query + i * how.in_heads, *g_of_query = g + i * numbers;
        exponentials_of(how, l, query, {lse + query.t, how.queries}, x, unmixes ? slopes : nullptr,
                        weighs ? of_heads : unused);
        if (how.has_dropout()) decide_query(how, l, query, keep);
        if (how.has_dropout() && !how.dropout_before_mixing) undrop_query(how, l, query, keep, y);
        if (weighs) weigh_query(how, l, query, numbers_of, mixing, g_of_query);
        if (!unmixes) continue;
        if (weighs) with_sums(how, g_of_query, of_heads, g_of_query);
        unmix_query(how, l, query, numbers_of, mixing, of_heads, g_of_query);
        if (how.normaliser == Normaliser::sigsoftmax)
          for (int64_t c = 0; c * chunk < query.width; ++c)
            multiply_chunk(how.in_heads, std::min(chunk, query.width - c * chunk), slopes + c * l.step(),
                           y + c * l.step());
      }
      if (!unmixes) return;
      for (int64_t i = count; i < sight.queries; ++i)  // rows that only fill the tile
        for (float* tile : {p, d}) std::fill_n(tile + i * l.query(), l.query(), 0.0F);
      for (int64_t j = 0; j < how.in_heads; ++j) {
        const int64_t at = j * l.keys() * l.dk, of_head = j * l.rows * l.dk;
        const OneHead logits{d + j * chunk, rounded_tile};
        add_over_keys(how, l, sight, l.dk, logits, from.keys + at, sums + of_head);
        if (how.has_relative()) distances_backward(how, l, sight, j, distances, d, {tensors.dr, dy});
        add_over_queries(how, l, sight, l.dk, logits, rows + of_head, dk + at);
      }
      for (int64_t i = 0; i < how.out_heads; ++i)
        add_over_queries(how, l, sight, l.dv, {p + i * chunk, rounded_tile}, drows + i * l.rows * l.dv,
                         dv + i * l.keys() * l.dv);
    };
    const bool once = l.span >= how.keys;
    const int64_t from_key = how.first_seen(first) / l.span * l.span, end = how.seen(first + count - 1);
    for (int64_t key = from_key; !once && key < end; key += l.span) over_span(key, true, false);
    for (int64_t i = 0; !once && i < count; ++i)
      with_sums(how, g + i * numbers, of_query + i * how.in_heads, g + i * numbers);
    for (int64_t key = from_key; key < end; key += l.span) over_span(key, once, true);
    for (int64_t i = 0; i < count; ++i) {
      if (by_query)
        std::memcpy(dm + (first + i) * numbers, g + i * numbers, static_cast<size_t>(numbers) * sizeof(float));
      else
        for (int64_t n = 0; n < numbers; ++n) dm[n] += g[i * numbers + n];
    }
    if (how.has_relative()) {
      for (int64_t j = 0; j < how.in_heads; ++j) {
        add_rows(sums + j * l.rows * l.dk, count, l.dk, how.scale, tensors.du + j * l.dk);
        add_rows(dy + j * l.rows * l.dk, count, l.dk, how.scale, tensors.dv_bias + j * l.dk);
      }
      add_to(dy, of_tile, sums);
    }
    write_rows(l, query_rows(how), queries, sums, tensors.dq);
  }
  // An engine's queries are not scaled, which would round them.
  if (uses_engine(how)) scale_rows(how.scale, how.in_heads * l.keys(), l.dk, dk, l.dk);
}

template <Level L, class T>
void MixedLoops<L, T>::gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size,
                              Heads<T> to) {
  const int64_t wide = padded(size);
  for (int64_t r = 0; r < length; ++r)
    for (int64_t s = 0; s < size; s += lanes) {
      Floats sum;
      load(from + r * wide + s, sum);
      for (int64_t part = 1; part < parts; ++part) {
        Floats more;
        load(from + part * step + r * wide + s, more);
        sum += more;
      }
      store_part(sum, size - s, to.at(0, r) + s);
    }
}

}  // namespace mh::kernels
