// The loops of mixed_attention.cpp, which includes this once for every level of vector instructions: MH_TARGET compiles
// a function for it. What is always inlined besides is so in all of them.

// `count` numbers of type T, fewer than 16 allowed, and zeros.
template <class T>
MH_INLINE void load_part(const T* from, int64_t count, Floats& to) {
  if (count >= lanes) return load(from, to);
  float numbers[lanes] = {};
  for (int64_t i = 0; i < count; ++i) numbers[i] = to_float(from[i]);
  load(numbers, to);
}
template <class T>
MH_INLINE void store_part(const Floats& from, int64_t count, T* to) {
  if (count >= lanes) return store(from, to);
  float numbers[lanes];
  store(from, numbers);
  for (int64_t i = 0; i < count; ++i) from_float(numbers[i], to[i]);
}

// to (rows, padded size) = factor * from (length, size); rows behind are zero.
template <class T>
MH_TARGET void unpack_rows(const T* from, int64_t position, int64_t length, int64_t size, float factor, int64_t rows,
                           float* to) {
  const int64_t wide = padded(size);
  for (int64_t r = 0; r < length; ++r)
    for (int64_t i = 0; i < wide; i += lanes) {
      Floats v;
      load_part(from + r * position + i, size - i, v);
      v = v * factor;
      store(v, to + r * wide + i);
    }
  std::fill_n(to + length * wide, (rows - length) * wide, 0.0F);
}

// to (chunks, size, chunk): from (length, size) transposed, chunk by chunk; columns behind the length are zero.
template <class T>
MH_TARGET void unpack_turned(const T* from, int64_t position, int64_t length, int64_t size, float* to) {
  for (int64_t first = 0; first < chunks_of(length) * chunk; first += lanes) {
    const int64_t count = std::clamp<int64_t>(length - first, 0, lanes);
    float* block = to + first / chunk * size * chunk + first % chunk;
    for (int64_t i = 0; i < size; i += lanes) {
      Floats rows[lanes];
      for (int64_t j = 0; j < lanes; ++j) {
        if (j < count) load_part(from + (first + j) * position + i, size - i, rows[j]);
        else rows[j] = Floats{};
      }
      transpose(rows);
      for (int64_t j = 0; j < std::min<int64_t>(lanes, size - i); ++j) store(rows[j], block + (i + j) * chunk);
    }
  }
}

// Where the parts of packed keys and values are.
struct Packed {
  const float *turned_k, *keys, *values;  // (in, chunks, key_size, chunk), (in, keys, dk) of a backward pass; values
                                          // (out, keys, dv) or, backward, (out, chunks, value_size, chunk)
  MH_INLINE Packed(const MixedAttention& how, bool backward, const float* packed)
      : turned_k(packed), keys(packed + (backward ? mixed_key_floats(how) : 0)), values(keys + mixed_key_floats(how)) {}
};

// The same as operands of an engine: a head takes half of its floats.
MH_TARGET void pack_bf16(const MixedAttention& how, const Layout& l, bool backward, int64_t head,
                         Heads<const uint16_t> k, Heads<const uint16_t> v, float* turned_k, float* keys,
                         float* values) {
  const auto of_head = [&](float* part, int64_t i, int64_t wide) {
    return reinterpret_cast<uint16_t*>(part + i * l.keys() * wide);
  };
  if (head < how.in) {
    turn_rows(k.at(head, 0), k.position, how.keys, l.keys(), how.key_size, of_head(turned_k, head, l.dk));
    if (backward) pair_rows(k.at(head, 0), k.position, how.keys, l.keys(), how.key_size, of_head(keys, head, l.dk));
    return;
  }
  head -= how.in;
  uint16_t* to = of_head(values, head, l.dv);
  if (backward) turn_rows(v.at(head, 0), v.position, how.keys, l.keys(), how.value_size, to);
  else pair_rows(v.at(head, 0), v.position, how.keys, l.keys(), how.value_size, to);
}

template <class T>
MH_TARGET void pack(const MixedAttention& how, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                    float* packed) {
  if (takes_few(how)) return;
  const Layout l(how, 0);
  const Packed to(how, backward, packed);
  const auto at = [&](const float* part, int64_t offset) { return packed + (part - packed) + offset; };
  if constexpr (std::is_same_v<T, uint16_t>)
    if (by_engine(how))
      return pack_bf16(how, l, backward, head, k, v, at(to.turned_k, 0), at(to.keys, 0), at(to.values, 0));
  if (head < how.in) {
    unpack_turned(k.at(head, 0), k.position, how.keys, how.key_size,
                  at(to.turned_k, head * l.chunks * how.key_size * chunk));
    if (backward)
      unpack_rows(k.at(head, 0), k.position, how.keys, how.key_size, 1.0F, how.keys,
                  at(to.keys, head * l.keys() * l.dk));
    return;
  }
  head -= how.in;
  if (backward)
    unpack_turned(v.at(head, 0), v.position, how.keys, how.value_size,
                  at(to.values, head * l.chunks * how.value_size * chunk));
  else
    unpack_rows(v.at(head, 0), v.position, how.keys, how.value_size, 1.0F, how.keys,
                at(to.values, head * l.keys() * l.dv));
}

// How far the queries of a tile see: their numbers are there up to the keys that the last of eight sees.
struct Sight {
  int64_t queries;       // a multiple of 8
  int64_t first, width;  // keys that the first one sees, and the last
  bool causal;
  MH_INLINE int64_t reach(int64_t i) const { return causal ? std::min(width, first + (i | 7)) : width; }
  MH_INLINE bool all_see(int64_t keys) const { return !causal || first + 7 >= std::min(keys, width); }
};

// Where a query's numbers of a head are, of keys that are in one place: up to the chunk's end.
MH_INLINE int64_t place_of(const Layout& l, int64_t key) { return key / chunk * l.step() + key % chunk; }
MH_INLINE int64_t together(int64_t key, int64_t end) { return std::min(end, (key / chunk + 1) * chunk) - key; }

// tile (queries, …) of all chunks that they see = rows (heads, l.rows, wide) times turned (heads, chunks, size, chunk).
MH_TARGET void products_with_keys(const Layout& l, int64_t heads, const Sight& sight, int64_t size, int64_t wide,
                                  const float* rows, const float* turned, float* tile) {
  for (int64_t j = 0; j < heads; ++j)
    for (int64_t c = 0; c * chunk < sight.width; ++c) {
      const float *a = rows + j * l.rows * wide, *b = turned + (j * l.chunks + c) * size * chunk;
      float* to = tile + c * l.step() + j * chunk;
      if (sight.all_see((c + 1) * chunk)) {
        product<Tile, false>(sight.queries, padded(std::min(chunk, sight.width - c * chunk)), size, a, wide, 1, b,
                             chunk, to, l.query());
        continue;
      }
      for (int64_t y = 0; y < sight.queries; y += 8)
        product<Tile, false>(8, padded(std::clamp<int64_t>(sight.reach(y) - c * chunk, 0, chunk)), size, a + y * wide,
                             wide, 1, b, chunk, to + y * l.query(), l.query());
    }
}

// sums (queries, wide) = tile of one head times values (keys, wide).
MH_TARGET void product_over_keys(const Layout& l, const Sight& sight, int64_t wide, const float* tile,
                                 const float* values, float* sums) {
  if (sight.width <= 0) std::fill_n(sums, sight.queries * wide, 0.0F);
  const auto add = [&](int64_t c, int64_t y, int64_t queries, int64_t count) MH_TARGET {
    const float *a = tile + c * l.step() + y * l.query(), *b = values + c * chunk * wide;
    if (c == 0) product<Tile, false>(queries, wide, count, a, l.query(), 1, b, wide, sums + y * wide, wide);
    else product<Tile, true>(queries, wide, count, a, l.query(), 1, b, wide, sums + y * wide, wide);
  };
  for (int64_t c = 0; c * chunk < sight.width; ++c) {
    if (sight.all_see((c + 1) * chunk)) add(c, 0, sight.queries, std::min(chunk, sight.width - c * chunk));
    else
      for (int64_t y = 0; y < sight.queries; y += 8)
        if (sight.reach(y) > c * chunk || c == 0)
          add(c, y, 8, std::clamp<int64_t>(sight.reach(y) - c * chunk, 0, chunk));
  }
}

// sums (keys, wide) += tile of one head, transposed, times rows (queries, wide).
MH_TARGET void product_over_queries(const Layout& l, const Sight& sight, int64_t wide, const float* tile,
                                    const float* rows, float* sums) {
  for (int64_t c = 0; c * chunk < sight.width; ++c) {
    const int64_t count = padded(std::min(chunk, sight.width - c * chunk));
    const float* a = tile + c * l.step();
    float* to = sums + c * chunk * wide;
    if (sight.all_see((c + 1) * chunk)) {
      product<Tile, true>(count, wide, sight.queries, a, 1, l.query(), rows, wide, to, wide);
      continue;
    }
    int64_t from = 0;  // the first query whose eight see the keys
    for (int64_t x = 0; x < count; x += 8) {
      while (from < sight.queries && padded(sight.reach(from)) <= c * chunk + x) from += 8;
      product<Tile, true>(8, wide, sight.queries - from, a + x + from * l.query(), 1, l.query(), rows + from * wide,
                          wide, to + x * wide, wide);
    }
  }
}

// Products with keys by an engine; `rows` and `turned` hold its operands, in half of their floats. `factor` is of the
// results.
MH_TARGET void engine_with_keys(const Bf16Engine& engine, const Layout& l, int64_t heads, const Sight& sight,
                                int64_t wide, float factor, const float* rows, const float* turned, float* tile) {
  for (int64_t j = 0; j < heads; ++j)
    for (int64_t s = 0; s < sight.width; s += kEngineColumns) {
      float* to = tile + j * chunk + place_of(l, s);
      engine_product(engine, l.rows, kEngineColumns, wide, reinterpret_cast<const uint16_t*>(rows + j * l.rows * wide),
                     wide, reinterpret_cast<const uint16_t*>(turned + j * l.keys() * wide) + s * wide, wide, 0, false,
                     to, l.query());
      if (factor != 1) scale_rows(factor, sight.queries, kEngineColumns, to, l.query());
    }
}
// The tile of one head. Its numbers are there up to a multiple of 16.
MH_INLINE auto engine_tile(const Bf16Engine& engine, const Layout& l, const Sight& sight, const float* tile,
                           uint16_t* rounded_tile) {
  return EngineTile{engine,
                    l.rows,
                    0,
                    sight.width,
                    l.query(),
                    [&l, tile](int64_t s) { return tile + place_of(l, s); },
                    [&sight](int64_t i) { return i < sight.queries ? padded(sight.reach(i)) : 0; },
                    rounded_tile};
}

// to (heads, l.rows, padded size) floats: in the first half of a head's the numbers of bf16, in the second they are
// joined in pairs. Of fp32 there is no engine.
template <class T>
MH_TARGET void take_rows(const Layout& l, Heads<const T> from, int64_t heads, int64_t first, int64_t count,
                         int64_t size, bool paired, float* to) {
  if constexpr (std::is_same_v<T, uint16_t>)
    for (int64_t j = 0; j < heads; ++j) {
      const int64_t wide = padded(size);
      auto* rows = reinterpret_cast<uint16_t*>(to + j * l.rows * wide);
      copy_rows(from.at(j, first), from.position, count, l.rows, size, rows);
      if (paired) pair_rows(rows, wide, l.rows, l.rows, wide, rows + l.rows * wide);
    }
}

// Queries as relative positions read them: rows (heads, l.rows, dk), scaled, get the bias of keys, and `positions` that
// of distances.
MH_TARGET void with_biases(const MixedAttention& how, const Layout& l, int64_t count, float* rows, float* positions) {
  const Relative& r = *how.relative;
  std::fill_n(positions, how.in * l.rows * l.dk, 0.0F);
  for (int64_t j = 0; j < how.in; ++j)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t s = 0; s < l.dk; s += lanes) {
        const int64_t at = (j * l.rows + i) * l.dk + s;
        Floats q, u, v;
        load(rows + at, q);
        load(r.u + j * r.size + s, u);
        load(r.v + j * r.size + s, v);
        u = q + u * how.scale, v = q + v * how.scale;
        store(u, rows + at);
        store(v, positions + at);
      }
}

// A tile of logits gets those of distances.
MH_TARGET void add_distances(const MixedAttention& how, const Layout& l, const Sight& sight, int64_t first,
                             int64_t count, const float* positions, float* by_distance, float* tile) {
  const Relative& r = *how.relative;
  const int64_t row = distances_of(how.keys, l.rows);
  for (int64_t j = 0; j < how.in; ++j)
    for (int64_t run = 0; run < r.count; ++run) {
      const Reach z = reach_of(r.runs[run], how.queries, first, count, 0, sight.width);
      if (z.keys <= 0) continue;
      product<Tile, false>(sight.queries, padded(z.rows), l.dk, positions + j * l.rows * l.dk, l.dk, 1,
                           r.turned + j * r.size * r.distances + z.row, r.distances, by_distance, row);
      for (int64_t i = 0; i < count; ++i) {
        const float* from = by_distance + i * row + count - 1 - i;
        const int64_t end = std::min(z.key + z.keys, sight.reach(i));
        for (int64_t s = z.key, n = 0; s < end; s += n) {
          n = together(s, end);
          add_to(from + s - z.key, n, tile + i * l.query() + j * chunk + place_of(l, s));
        }
      }
    }
}

// The gradients of those, from that of the logits of head j: dr, and dy (rows, dk) of its positions.
MH_TARGET void distances_backward(const MixedAttention& how, const Layout& l, const Sight& sight, int64_t first,
                                  int64_t count, int64_t j, const float* positions, const float* tile,
                                  float* by_distance, float* dr, float* dy) {
  const Relative& r = *how.relative;
  const int64_t row = distances_of(how.keys, l.rows);
  std::fill_n(dy, sight.queries * l.dk, 0.0F);
  for (int64_t run = 0; run < r.count; ++run) {
    const Reach z = reach_of(r.runs[run], how.queries, first, count, 0, sight.width);
    if (z.keys <= 0) continue;
    std::fill_n(by_distance, sight.queries * row, 0.0F);
    for (int64_t i = 0; i < count; ++i) {
      float* to = by_distance + i * row + count - 1 - i;
      const int64_t end = std::min(z.key + z.keys, how.seen(first + i));
      for (int64_t s = z.key, n = 0; s < end; s += n) {
        n = together(s, end);
        std::memcpy(to + s - z.key, tile + i * l.query() + j * chunk + place_of(l, s),
                    static_cast<size_t>(n) * sizeof(float));
      }
    }
    const int64_t of_head = j * r.distances * r.size + z.row * r.size;
    product<Tile, true>(sight.queries, l.dk, z.rows, by_distance, row, 1, r.rows + of_head, l.dk, dy, l.dk);
    product<Tile, true>((z.rows + 7) / 8 * 8, l.dk, sight.queries, by_distance, 1, row, positions + j * l.rows * l.dk,
                        l.dk, dr + of_head, l.dk);
  }
}

// Of one head of one query: what it does not see in front becomes `value`.
MH_TARGET void hide_before(const Layout& l, int64_t first, float value, float* x) {
  for (int64_t s = 0, n = 0; s < first; s += n) {
    n = together(s, first);
    std::fill_n(x + place_of(l, s), n, value);
  }
}

MH_TARGET void sigsoftmax_in(const Layout& l, int64_t width, float* x, float* slopes) {
  for (int64_t c = 0; c * chunk < width; ++c)
    sigsoftmax_logits(x + c * l.step(), padded(std::min(chunk, width - c * chunk)),
                      slopes != nullptr ? slopes + c * l.step() : nullptr);
}

// One head of one query.
MH_TARGET float maximum_in(const Layout& l, const float* x, int64_t seen) {
  float top = -INFINITY;
  for (int64_t c = 0; c * chunk < seen; ++c)
    top = std::max(top, maximum_of(x + c * l.step(), std::min(chunk, seen - c * chunk)));
  return top;
}
MH_TARGET float exponentials_in(const Layout& l, float* x, int64_t seen, int64_t width, float maximum) {
  float sum = 0;
  for (int64_t c = 0; c * chunk < width; ++c) {
    const int64_t here = std::clamp<int64_t>(seen - c * chunk, 0, chunk);
    sum += exponentials(x + c * l.step(), here, padded(std::min(chunk, width - c * chunk)), maximum);
  }
  return sum;
}

// keep (heads, l.decisions()) for query t; a row begins behind kDropoutGroup numbers.
MH_TARGET void decide_query(const MixedAttention& how, const Layout& l, int64_t t, int64_t seen, float* keep) {
  const int64_t heads = how.dropped_first ? how.in : how.out;
  for (int64_t h = 0; h < heads; ++h)
    decide_range(*how.dropout, how.dropout_first + static_cast<uint64_t>(h * how.dropout_head + t * how.dropout_row),
                 seen, keep + h * l.decisions() + kDropoutGroup);
}

// y (heads, chunk) = x (heads, chunk) by the decisions of chunk c; what nobody decided is 0 in x, and stays.
MH_TARGET void drop_chunk(const Layout& l, int64_t heads, int64_t c, int64_t count, const float* keep, const float* x,
                          float* y) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < count; s += lanes) {
      Floats k, v;
      load(keep + h * l.decisions() + kDropoutGroup + c * chunk + s, k);
      load(x + h * chunk + s, v);
      replace_from(count - s, 0, k);
      store(kept(k, v), y + h * chunk + s);
    }
}

MH_INLINE void copy_chunk(int64_t heads, int64_t count, const float* from, float* to) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < count; s += lanes) {
      Floats v;
      load(from + h * chunk + s, v);
      store(v, to + h * chunk + s);
    }
}

// y (heads, chunk) *= x.
MH_TARGET void multiply_chunk(int64_t heads, int64_t count, const float* x, float* y) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < count; s += lanes) {
      Floats a, b;
      load(x + h * chunk + s, a);
      load(y + h * chunk + s, b);
      b = b * a;
      store(b, y + h * chunk + s);
    }
}

// Exponentials of a query (in) become mixed probabilities (out), where it sees `seen` keys and others of the tile
// `width`.
MH_TARGET void mix_query(const MixedAttention& how, const Layout& l, int64_t t, int64_t seen, int64_t width,
                         const float* matrix, float* x, float* keep, float* mixed) {
  const bool drops = how.dropout != nullptr;
  if (drops) decide_query(how, l, t, seen, keep);
  for (int64_t c = 0; c * chunk < width; ++c) {
    const int64_t wide = std::min(chunk, width - c * chunk), count = std::clamp<int64_t>(seen - c * chunk, 0, wide);
    float* here = x + c * l.step();
    if (drops && how.dropped_first) drop_chunk(l, how.in, c, count, keep, here, here);
    mix_chunk(how.in, how.out, matrix, how.out, 1, here, wide, mixed);
    if (drops && !how.dropped_first) {
      copy_chunk(how.out, wide, mixed, here);
      drop_chunk(l, how.out, c, count, keep, mixed, here);
    } else {
      copy_chunk(how.out, wide, mixed, here);
    }
  }
}

// p: probabilities of a query (in), become mixed ones, as dropped (out); d: gradients of mixed ones, as dropped (out),
// become those of the logits (in). g (in, out): that of the matrix. lanes_: scratch (in, out, 16).
MH_TARGET void unmix_query(const MixedAttention& how, const Layout& l, int64_t t, int64_t seen, int64_t width,
                           const float* matrix, float* p, float* d, float* keep, float* g, float* of_lanes,
                           float* given, float* mixed) {
  const int64_t in = how.in, out = how.out;
  const bool first = how.dropout != nullptr && how.dropped_first, behind = how.dropout != nullptr && !first;
  if (how.dropout != nullptr) decide_query(how, l, t, seen, keep);
  std::fill_n(of_lanes, in * out * lanes, 0.0F);
  for (int64_t c = 0; c * chunk < width; ++c) {
    const int64_t wide = std::min(chunk, width - c * chunk), count = std::clamp<int64_t>(seen - c * chunk, 0, wide);
    const float* x = p + c * l.step();
    float* dy = d + c * l.step();
    if (behind) drop_chunk(l, out, c, count, keep, dy, dy);
    if (first) copy_chunk(in, wide, x, given), drop_chunk(l, in, c, count, keep, x, given), x = given;
    outer_chunk(in, out, x, dy, count, of_lanes);
  }
  for (int64_t i = 0; i < in * out; ++i) {
    Floats sum;
    load(of_lanes + i * lanes, sum);
    g[i] = sum_of(sum);
  }
  for (int64_t c = 0; c * chunk < width; ++c) {
    const int64_t wide = std::min(chunk, width - c * chunk), count = std::clamp<int64_t>(seen - c * chunk, 0, wide);
    float *x = p + c * l.step(), *dy = d + c * l.step();
    mix_chunk(out, in, matrix, 1, out, dy, wide, mixed);  // gradients of what is mixed
    if (first) drop_chunk(l, in, c, count, keep, mixed, mixed);
    for (int64_t j = 0; j < in; ++j) {
      float delta = 0;
      for (int64_t i = 0; i < out; ++i) delta += matrix[j * out + i] * g[j * out + i];
      for (int64_t s = 0; s < wide; s += lanes) {
        Floats a, b;
        load(x + j * chunk + s, a);
        load(mixed + j * chunk + s, b);
        b = a * (b - delta);
        store(b, dy + j * chunk + s);
      }
    }
    if (first) drop_chunk(l, in, c, count, keep, x, x);
    mix_chunk(in, out, matrix, out, 1, x, wide, mixed);
    copy_chunk(out, wide, mixed, x);
    if (behind) drop_chunk(l, out, c, count, keep, mixed, x);
  }
}

// Exponentials of a query's logits become mixed probabilities; its log_sums are written.
MH_TARGET void normalise_and_mix(const MixedAttention& how, const Layout& l, int64_t t, int64_t width,
                                 const float* given, float* x, float* log_sums, float* matrix, float* keep,
                                 float* mixed) {
  const int64_t seen = how.seen(t), unseen = how.first_seen(t);
  for (int64_t j = 0; j < how.in; ++j) {
    float* of_head = x + j * chunk;
    if (how.normaliser == Normaliser::sigsoftmax) sigsoftmax_in(l, width, of_head, nullptr);
    hide_before(l, unseen, -INFINITY, of_head);
    const float top = maximum_in(l, of_head, seen);
    const float sum = exponentials_in(l, of_head, seen, width, top), inverse = sum == 0 ? 0 : 1 / sum;
    hide_before(l, unseen, 0, of_head);
    log_sums[j * how.queries + t] = top + std::log(sum);
    for (int64_t i = 0; i < how.out; ++i) matrix[j * how.out + i] = given[j * how.out + i] * inverse;
  }
  mix_query(how, l, t, seen, width, matrix, x, keep, mixed);
}

// out (vectors * 16 of `size`) = Σ_s x[s] v_s from column `first` on; x of one head.
template <int vectors, class T>
MH_TARGET void weighed_values(const Layout& l, const float* x, int64_t seen, const T* v, int64_t position,
                              int64_t first, int64_t size, T* out) {
  Floats sum[vectors];
  for (int i = 0; i < vectors; ++i) sum[i] = Floats{};
  for (int64_t s = 0; s < seen; ++s) {
    const float weight = x[s / chunk * l.step() + s % chunk];
    for (int i = 0; i < vectors; ++i) {
      Floats b;
      load_part(v + s * position + first + i * lanes, size - first - i * lanes, b);
      sum[i] += weight * b;
    }
  }
  for (int i = 0; i < vectors; ++i) store_part(sum[i], size - first - i * lanes, out + first + i * lanes);
}

// Of kFewQueries at most nothing is unpacked. What the three steps share: the numbers of every query, and behind them
// what one query is mixed with.
struct Few {
  Layout l;
  float *queries, *mixed, *matrix;  // (queries, l.query()); (heads, chunk); (in, out)
  MH_INLINE Few(const MixedAttention& how, float* shared)
      : l(how, 1), queries(shared), mixed(queries + how.queries * l.query()), matrix(mixed + l.heads * chunk) {}
  MH_INLINE float* query(int64_t t) const { return queries + t * l.query(); }
};

// x = or += the products of one query's `size` numbers, in so many vectors, with its keys.
template <int vectors, class T>
MH_TARGET void few_products(const Layout& l, const T* q, float scale, int64_t size, const T* k, int64_t position,
                            int64_t seen, bool add, float* x) {
  Floats row[vectors];
  for (int i = 0; i < vectors; ++i) {
    load_part(q + i * lanes, size - i * lanes, row[i]);
    row[i] = row[i] * scale;
  }
  const bool whole = size == vectors * lanes;
  for (int64_t s = 0; s < seen; ++s) {
    const T* key = k + s * position;
    Floats sum{};
    for (int i = 0; i < vectors; ++i) {
      Floats b;
      if (whole) load(key + i * lanes, b);
      else load_part(key + i * lanes, size - i * lanes, b);
      sum += row[i] * b;
    }
    float& to = x[place_of(l, s)];
    to = (add ? to : 0) + sum_of(sum);
  }
}

// Logits of head j.
template <class T>
MH_TARGET void few_logits(const MixedAttention& how, int64_t j, Heads<const T> q, Heads<const T> k, float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t)
    for (int64_t first = 0; first < how.key_size; first += 4 * lanes) {
      const int64_t size = std::min<int64_t>(how.key_size - first, 4 * lanes);
      const auto products = size > 2 * lanes ? few_products<4, T>
                            : size > lanes   ? few_products<2, T>
                                             : few_products<1, T>;
      products(few.l, q.at(j, t) + first, how.scale, size, k.at(j, 0) + first, k.position, how.seen(t), first > 0,
               few.query(t) + j * chunk);
    }
}

MH_TARGET void few_mix(const MixedAttention& how, const float* m, float* log_sums, float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t)
    normalise_and_mix(how, few.l, t, how.seen(t), m + (how.by_query ? t * how.in * how.out : 0), few.query(t), log_sums,
                      few.matrix, nullptr, few.mixed);
}

// Values of head i.
template <class T>
MH_TARGET void few_values(const MixedAttention& how, int64_t i, Heads<const T> v, Heads<T> out, float* shared) {
  const Few few(how, shared);
  for (int64_t t = 0; t < how.queries; ++t) {
    const float* x = few.query(t) + i * chunk;
    int64_t c = 0;
    for (; c + 4 * lanes <= how.value_size; c += 4 * lanes)
      weighed_values<4>(few.l, x, how.seen(t), v.at(i, 0), v.position, c, how.value_size, out.at(i, t));
    for (; c < how.value_size; c += lanes)
      weighed_values<1>(few.l, x, how.seen(t), v.at(i, 0), v.position, c, how.value_size, out.at(i, t));
  }
}

// Tiles are dealt out back and forth: under a causal mask later ones are more work.
MH_INLINE int64_t tile_of(int64_t part, int64_t parts, int64_t round) {
  return round * parts + (round % 2 == 0 ? part : parts - 1 - part);
}

template <class T>
MH_TARGET void forward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, Heads<const T> k,
                       Heads<const T> v, const float* packed, const float* m, Heads<T> out, float* log_sums,
                       float* scratch) {
  if (takes_few(how)) {
    if (part != 0) return;
    for (int64_t j = 0; j < how.in; ++j) few_logits(how, j, q, k, scratch);
    few_mix(how, m, log_sums, scratch);
    for (int64_t i = 0; i < how.out; ++i) few_values(how, i, v, out, scratch);
    return;
  }
  const Layout l(how, mixed_attention_rows(how));
  const Packed from(how, false, packed);
  float* tile = scratch;
  float* rows = tile + l.tile();                // scaled queries (in, rows, dk)
  float* sums = rows + how.in * l.rows * l.dk;  // (rows, dv)
  float* mixed = sums + l.rows * l.dv;          // (heads, chunk)
  float* matrix = mixed + l.heads * chunk;      // (in, out), for one query
  float* keep = matrix + padded(how.in * how.out);
  float* positions = keep + decisions_scratch(how, l);          // queries with their bias for distances (in, rows, dk)
  float* by_distance = positions + how.in * l.rows * l.dk;      // (rows, distances)
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // of an engine, which no distances are for
  for (int64_t round = 0; round * parts * l.rows < how.queries; ++round) {
    const int64_t first = tile_of(part, parts, round) * l.rows, count = std::min(l.rows, how.queries - first);
    if (count <= 0) continue;
    const Sight sight{(count + 7) / 8 * 8, how.seen(first), how.seen(first + count - 1), how.causal};
    if (by_engine(how)) {
      take_rows(l, q, how.in, first, count, how.key_size, false, rows);
      engine_with_keys(*how.bf16, l, how.in, sight, l.dk, how.scale, rows, from.turned_k, tile);
    } else {
      for (int64_t j = 0; j < how.in; ++j)
        unpack_rows(q.at(j, first), q.position, count, how.key_size, how.scale, l.rows, rows + j * l.rows * l.dk);
      if (how.relative != nullptr) with_biases(how, l, count, rows, positions);
      products_with_keys(l, how.in, sight, how.key_size, l.dk, rows, from.turned_k, tile);
      if (how.relative != nullptr) add_distances(how, l, sight, first, count, positions, by_distance, tile);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = first + i;
      normalise_and_mix(how, l, t, sight.reach(i), m + (how.by_query ? t * how.in * how.out : 0), tile + i * l.query(),
                        log_sums, matrix, keep, mixed);
    }
    for (int64_t i = 0; i < how.out; ++i) {
      const float* values = from.values + i * l.keys() * l.dv;
      if (by_engine(how))
        engine_tile(*how.bf16, l, sight, tile + i * chunk, rounded_tile)
            .over_keys(reinterpret_cast<const uint16_t*>(values), l.keys(), l.dv, sums);
      else product_over_keys(l, sight, l.dv, tile + i * chunk, values, sums);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t s = 0; s < how.value_size; s += lanes) {
          Floats sum;
          load(sums + r * l.dv + s, sum);
          store_part(sum, how.value_size - s, out.at(i, first + r) + s);
        }
    }
  }
}

template <class T>
MH_TARGET void backward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, const float* packed,
                        const float* m, Heads<const T> dout, const float* log_sums, Heads<T> dq,
                        const MixedGradients& to, float* scratch) {
  float *dk = to.dk, *dv = to.dv, *dm = to.dm;
  const Layout l(how, mixed_attention_rows(how));
  const int64_t numbers = how.in * how.out;
  const Packed from(how, true, packed);
  float* p = scratch;                             // a tile
  float* d = p + l.tile();                        // a tile
  float* rows = d + l.tile();                     // scaled queries (in, rows, dk)
  float* drows = rows + how.in * l.rows * l.dk;   // (out, rows, dv)
  float* sums = drows + how.out * l.rows * l.dv;  // (rows, dk)
  float* of_lanes = sums + l.rows * l.dk;         // (in, out, 16)
  float* g = of_lanes + numbers * lanes;          // (in, out)
  float* given = g + padded(numbers);             // (heads, chunk)
  float* mixed = given + l.heads * chunk;         // (heads, chunk)
  float* keep = mixed + l.heads * chunk;
  float* slopes = keep + decisions_scratch(how, l);             // of Sigsoftmax, as a query of a tile
  float* positions = slopes + l.query();                        // (in, rows, dk)
  float* by_distance = positions + how.in * l.rows * l.dk;      // (rows, distances)
  float* dy = by_distance + by_distance_scratch(how, l);        // (rows, dk)
  auto* rounded_tile = reinterpret_cast<uint16_t*>(positions);  // of an engine, which no distances are for
  const bool sloped = how.normaliser == Normaliser::sigsoftmax;
  if (const Relative* r = how.relative; r != nullptr) {
    std::fill_n(to.du, how.in * l.dk, 0.0F), std::fill_n(to.dv_bias, how.in * l.dk, 0.0F);
    std::fill_n(to.dr, how.in * r->distances * r->size, 0.0F);
  }
  std::fill_n(dk, mixed_key_floats(how), 0.0F);
  std::fill_n(dv, mixed_value_floats(how), 0.0F);
  if (!how.by_query) std::fill_n(dm, numbers, 0.0F);
  for (int64_t round = 0; round * parts * l.rows < how.queries; ++round) {
    const int64_t first = tile_of(part, parts, round) * l.rows, count = std::min(l.rows, how.queries - first);
    if (count <= 0) continue;
    const Sight sight{(count + 7) / 8 * 8, how.seen(first), how.seen(first + count - 1), how.causal};
    if (by_engine(how)) {
      take_rows(l, q, how.in, first, count, how.key_size, true, rows);
      take_rows(l, dout, how.out, first, count, how.value_size, true, drows);
      engine_with_keys(*how.bf16, l, how.in, sight, l.dk, how.scale, rows, from.turned_k, p);
      engine_with_keys(*how.bf16, l, how.out, sight, l.dv, 1, drows, from.values, d);
    } else {
      for (int64_t j = 0; j < how.in; ++j)
        unpack_rows(q.at(j, first), q.position, count, how.key_size, how.scale, l.rows, rows + j * l.rows * l.dk);
      for (int64_t i = 0; i < how.out; ++i)
        unpack_rows(dout.at(i, first), dout.position, count, how.value_size, 1.0F, l.rows, drows + i * l.rows * l.dv);
      if (how.relative != nullptr) with_biases(how, l, count, rows, positions);
      products_with_keys(l, how.in, sight, how.key_size, l.dk, rows, from.turned_k, p);
      if (how.relative != nullptr) add_distances(how, l, sight, first, count, positions, by_distance, p);
      products_with_keys(l, how.out, sight, how.value_size, l.dv, drows, from.values, d);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = first + i, seen = how.seen(t), width = sight.reach(i);
      for (int64_t j = 0; j < how.in; ++j) {
        float* of_head = p + i * l.query() + j * chunk;
        if (sloped) sigsoftmax_in(l, width, of_head, slopes + j * chunk);
        exponentials_in(l, of_head, seen, width, log_sums[j * how.queries + t]);
        hide_before(l, how.first_seen(t), 0, of_head);
      }
      unmix_query(how, l, t, seen, width, m + (how.by_query ? t * numbers : 0), p + i * l.query(), d + i * l.query(),
                  keep, g, of_lanes, given, mixed);
      if (sloped)
        for (int64_t c = 0; c * chunk < width; ++c)
          multiply_chunk(how.in, std::min(chunk, width - c * chunk), slopes + c * l.step(),
                         d + i * l.query() + c * l.step());
      if (how.by_query) std::memcpy(dm + t * numbers, g, static_cast<size_t>(numbers) * sizeof(float));
      else
        for (int64_t n = 0; n < numbers; ++n) dm[n] += g[n];
    }
    for (int64_t i = count; i < sight.queries; ++i)  // rows that only fill the tile
      for (float* tile : {p, d}) std::fill_n(tile + i * l.query(), l.query(), 0.0F);
    const auto over_queries = [&](int64_t wide, const float* tile, const float* of_rows,
                                  float* sums_of_keys) MH_TARGET {
      if (!by_engine(how)) return product_over_queries(l, sight, wide, tile, of_rows, sums_of_keys);
      const auto* paired = reinterpret_cast<const uint16_t*>(of_rows) + l.rows * wide;
      engine_tile(*how.bf16, l, sight, tile, rounded_tile).over_queries(paired, wide, sums_of_keys);
    };
    for (int64_t j = 0; j < how.in; ++j) {
      const float* keys = from.keys + j * l.keys() * l.dk;
      if (by_engine(how))
        engine_tile(*how.bf16, l, sight, d + j * chunk, rounded_tile)
            .over_keys(reinterpret_cast<const uint16_t*>(keys), l.keys(), l.dk, sums);
      else product_over_keys(l, sight, l.dk, d + j * chunk, keys, sums);
      if (how.relative != nullptr) {
        distances_backward(how, l, sight, first, count, j, positions, d, by_distance, to.dr, dy);
        add_rows(sums, count, l.dk, how.scale, to.du + j * l.dk);
        add_rows(dy, count, l.dk, how.scale, to.dv_bias + j * l.dk);
        add_to(dy, count * l.dk, sums);
      }
      for (int64_t r = 0; r < count; ++r)
        for (int64_t s = 0; s < how.key_size; s += lanes) {
          Floats sum;
          load(sums + r * l.dk + s, sum);
          sum = sum * how.scale;
          store_part(sum, how.key_size - s, dq.at(j, first + r) + s);
        }
      over_queries(l.dk, d + j * chunk, rows + j * l.rows * l.dk, dk + j * l.keys() * l.dk);
    }
    for (int64_t i = 0; i < how.out; ++i)
      over_queries(l.dv, p + i * chunk, drows + i * l.rows * l.dv, dv + i * l.keys() * l.dv);
  }
  // An engine's queries are not scaled, which would round them.
  if (by_engine(how)) scale_rows(how.scale, how.in * l.keys(), l.dk, dk, l.dk);
}

template <class T>
MH_TARGET void gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, T* to,
                      int64_t position) {
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
      store_part(sum, size - s, to + r * position + s);
    }
}

template <class T>
constexpr Loops<T> loops{pack<T>, forward<T>, backward<T>, gather<T>, few_logits<T>, few_mix, few_values<T>};
