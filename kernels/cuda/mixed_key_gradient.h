// The gradient of keys and values of attention with head mixing, the last of the three kernels of mixed_backward.h.
// Tiling: a block computes strips of 16 keys and loops over the queries, so tiles of probabilities are transposed. The
// gradient of r, of relative positions, is the same with a block of distances.
#pragma once

#include "cuda/mixed_relative.h"

namespace mh::kernels {

// The resident rows of a block: keys; keys of one run, with relative positions; or rows of r.
enum class Staying { keys, keys_of_run, distances };

template <class T, int kSize, bool kOfKeys, bool kOfValues, Staying kStays = Staying::keys>
struct MixedKeyGradientTiles {
  static constexpr int kStride = kSize + kPad, kMost = kStays == Staying::distances || (kOfKeys && kOfValues) ? 2 : 4;
  // Columns of the gradient of distances computed by a block: half of wide fp32 rows, so that registers suffice.
  static constexpr int kColumns = kStays == Staying::distances && kSize * sizeof(T) >= 512 ? kSize / 2 : kSize,
                       kPieces = kSize / kColumns;
  static constexpr int kFit = heads_of_warp<T>(kOfKeys && kOfValues ? 2 * kSize : kColumns);
  static constexpr int kOwn = kFit < kMost ? kFit : kMost;
  static constexpr int kKeysAhead = kStays == Staying::keys_of_run || sizeof(T) == 4 ? 1 : kMixedAhead<T, kSize>;
  static constexpr int kAhead = kStays == Staying::distances && sizeof(T) == 2 ? 2 : kKeysAhead;
  using Probability = typename Exchanged<T>::Probability;
  static constexpr int exchanged(const AttentionParams& a) {
    return (kOfKeys ? Exchange<T>::of(a.out_heads) : 0) + (kOfValues ? Exchange<T>::of(a.in_heads) : 0);
  }
  static constexpr MixedPlan plan(const AttentionParams& a, int limit) {
    const int most = a.in_heads > a.out_heads ? a.in_heads : a.out_heads, both = a.in_heads + a.out_heads;
    const int weights = (kOfValues ? rows_of_weights(a.in_heads) : 0) + (kOfKeys ? rows_of_weights(a.out_heads) : 0);
    if (kStays == Staying::keys)
      return mixed_plan<T>({.divided = most,
                            .own = kOwn,
                            .staying = both,
                            .meeting = most,
                            .together = both,
                            .exchanged = exchanged(a),
                            .weights = weights},
                           kStride, limit);
    const bool distances = kStays == Staying::distances;
    return mixed_plan<T>({.divided = distances ? a.in_heads : most,
                          .own = kOwn,
                          .staying = distances ? a.in_heads : both,
                          .meeting = most,
                          .exchanged = exchanged(a),
                          .weights = weights,
                          .coming = 2,
                          .window = true},
                         kStride, limit);
  }
};
// The accumulators of both gradients do not fit into the registers of a warp: each gradient has a pass of its own.
template <class T, int kSize>
constexpr bool kMixedApart = kSize * sizeof(T) >= 512 || kSize > 128;

// Computes dk, if kOfKeys: for each query head (in) the gradient of the keys that it reads; dv, if kOfValues: for each
// head of the result. If each key/value head is read once (`joined`), results go to that head. Blocks: (order.blocks(),
// 1, plan.blocks), of tiles of 16 * strips keys. Padding keys get zeros. With relative positions q is q + u, shifted is
// q + v, and tiles do not cross runs: at most one tile more for each run after the first. For distances the result is
// dr (batch, in, distances, key_size), with kOfKeys only, zeros for distances that no pair has; blocks: of tiles of
// distances, (order.blocks(), 1, plan.blocks * column blocks of kColumns).
template <class T, int kSize, bool kOfKeys, bool kOfValues, Staying kStays, class Thread>
MH_DEVICE void mixed_key_gradient(const Thread& thread, const AttentionParams& a, const MixedPlan& plan,
                                  const BlockOrder& order, const KernelTensors<T>& tensors, void* memory) {
  using Z = MixedKeyGradientTiles<T, kSize, kOfKeys, kOfValues, kStays>;
  const Rows<const T>&q = tensors.q, &k = tensors.k, &v = tensors.v, &dout = tensors.dout;
  [[maybe_unused]] const Rows<const T>& shifted = tensors.shifted;
  [[maybe_unused]] const Rows<T>&dk = tensors.dk, &dv = tensors.dv;
  using Probability = typename Z::Probability;
  constexpr bool kRelative = kStays != Staying::keys, kDistances = kStays == Staying::distances;
  [[maybe_unused]] constexpr Pairs kPairs = kDistances ? Pairs::distances_queries : Pairs::keys_queries;
  static_assert(!kDistances || (kOfKeys && !kOfValues));
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn, kColumns = Z::kColumns;
  const BlockOrder::Place at_block = order.place(thread, false);
  const int64_t b = at_block.row;
  const MixedPlace at(thread, plan);
  // Resident rows: `first` to `rows_end` - 1.
  int first = at_block.tile * at.rows, rows_end = static_cast<int>(kDistances ? a.relative.distances : a.keys), run = 0;
  if constexpr (kStays == Staying::keys_of_run) {
    const KeyRange tile = tile_of_runs(a, first, at.rows, run);
    if (run == a.relative.num_runs) return;
    first = tile.first, rows_end = tile.end;
  }
  const int of_strip = at.strip * 16 * kStride;
  // Query heads and output heads of this block; and of this warp.
  const int block = Z::kPieces > 1 ? thread.block_z() % plan.blocks : thread.block_z();
  [[maybe_unused]] const int column = Z::kPieces > 1 ? thread.block_z() / plan.blocks * kColumns : 0;
  const int of_block = block * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn;
  const int in_end = of_next < a.in_heads ? of_next : a.in_heads, end = of_next < a.out_heads ? of_next : a.out_heads;
  const int keys = static_cast<int>(a.keys);
  const int real = a.key_lengths != nullptr && a.key_lengths[b] < keys ? static_cast<int>(a.key_lengths[b]) : keys;

  auto* const rows = static_cast<T*>(memory);  // resident rows: of k, then of v; or of r
  T* const of_values = rows + a.in_heads * at.rows * kStride;
  const MixedMemory<T> memory_of(plan, rows, kStride);
  Ring<T> ring = memory_of.ring;
  const int fragments = at.strip * Z::exchanged(a);
  const Exchange<Probability> probability(memory_of.template fragments<Probability>(fragments));
  const Exchange<T> gradient(
      memory_of.template fragments<T>(fragments + (kOfValues ? Exchange<T>::of(a.in_heads) : 0)));
  if (at.group == 0) {
    if (kOfValues) probability.begin(thread, a.in_heads);
    if (kOfKeys) gradient.begin(thread, a.out_heads);
  }
  [[maybe_unused]] float* const found = memory_of.products(thread, plan.strips * Z::exchanged(a));
  using Meets = Meeting<T, kSize, kRelative ? 2 : 1, 1, kRelative>;
  Meets logits{{q, b, nullptr}, {k, b, a.key_heads}, 0, a.in_heads, a.key_size, rows};
  Meets given{{dout, b, nullptr}, {v, b, a.value_heads}, 0, a.out_heads, a.value_size, of_values};
  if constexpr (kRelative) {
    const auto of_distances = rows_of_distances<T>(a);
    if constexpr (kDistances) {
      logits.coming = {shifted, b, nullptr}, logits.coming_too = {q, b, nullptr};
      logits.staying = {of_distances, b, nullptr}, logits.window = {k, b, a.key_heads};
      given.coming = given.staying = {}, given.coming_too = {dout, b, nullptr}, given.window = {v, b, a.value_heads};
    } else {
      logits.coming_too = {shifted, b, nullptr}, logits.window = {of_distances, b, nullptr};
    }
  }
  // The order of the work: exchanged gradients and probabilities, then values and keys of the warp's heads.
  const auto of_heads = [](Meets x, int begin, int part_end, bool with_staying) {
    x.first = begin, x.end = part_end > begin ? part_end : begin;
    if (!with_staying) x.staying.data = nullptr;
    return x;
  };
  const auto tiles = [&] {
    if constexpr (kDistances) {
      return QueriesOfDistances{a, first, at.rows, real};
    } else {
      const KeyRange seeing = queries_seeing(a, b, first, first + at.rows < rows_end ? first + at.rows : rows_end);
      if constexpr (kRelative) return SeeingQueries{a, seeing, first, run};
      else return Tiles{seeing};
    }
  }();
  const auto parts_of = [&](const auto&... meets) {
    return Parts<Meets, sizeof...(meets), decltype(tiles)>({meets...}, first, rows_end, tiles);
  };
  auto parts = [&] {
    const Meets own_given = of_heads(given, of_block, end, false),
                own_logits = of_heads(logits, of_block, in_end, true);
    if constexpr (kOfKeys && kOfValues) return parts_of(given, logits, own_given, own_logits);
    else if constexpr (kOfKeys) return parts_of(given, own_logits);
    else return parts_of(logits, own_given);
  }();
  // A stage that has all of a tile is acquired when work on the tile begins, and released when it ends.
  const bool whole = !kRelative && plan.whole;
  const auto load = [&](T* place) {
    if (!whole) return parts.load(thread, a, plan, place);
    if (const MixedTile tile = tiles(parts.number); tile.there()) {
      logits.load_coming(thread, a, plan, place, 0, a.in_heads, tile);
      given.load_coming(thread, a, plan, place + a.in_heads * 16 * kStride, 0, a.out_heads, tile);
      ++parts.number;
    }
    thread.end_group();
  };
  if (plan.kept > 0) {
    logits.keep(thread, a, plan, rows, first, rows_end);
    given.keep(thread, a, plan, of_values, first, rows_end);
  }
  ring.begin(thread, load);
  const Weights<Probability, kOwn> of_probabilities(
      thread, plan, memory, kOfValues ? a.shared_matrix(a.matrix, b) : nullptr, a.in_heads, a.out_heads, of_block, own);
  const Weights<T, kOwn> of_gradients(thread, plan, memory, kOfKeys ? a.shared_matrix(a.matrix_transposed, b) : nullptr,
                                      a.out_heads, a.in_heads, of_block, own,
                                      kOfValues ? rows_of_weights(a.in_heads) : 0);
  // The exchanged probabilities of softmax need not be recomputed.
  const bool exchanged =
      kOfKeys && kOfValues && a.normaliser == Normaliser::softmax && !(a.has_dropout() && a.dropout_before_mixing);

  Sum sums_k[kOfKeys ? kOwn : 1][kOfKeys ? kColumns / 8 : 2], sums_v[kOfValues ? kOwn : 1][kOfValues ? kSize / 8 : 2];
  int number = 0;
  for (MixedTile tile = tiles(0); tile.there(); tile = tiles(++number)) {
    const int query = tile.from + 2 * at.t;  // query of columns 0 and 1; 8 more for the others
    const QueryStats* const of_tile = tensors.query_stats + b * a.in_heads * a.queries + query;
    const auto matrix_of = [&](const float* all) {
      return [=](int c, int e) {
        const int of_column = query + 8 * c + e, clamped = of_column < tile.end ? of_column : tile.end - 1;
        return all + b * a.matrix_batch_stride + clamped * a.matrix_query_stride;
      };
    };
    // The first key of the strip; or, for distances, the offset from a query to the key at the first distance.
    const auto meets = [&] { return 16 * at.strip + (kDistances ? tile.window - tile.from : first); };
    const auto drop = [&](int head, Sum(&x)[2]) {
      drop_by(remaining_turned<2, kDistances>(a, b, head, query, meets() + at.g), a.dropout.scale, x);
    };
    // Computes P_jᵀ of head j and, if requested, slopes: P_jᵀ times the derivative of the logits.
    const auto probabilities_of = [&](int j, int begin, const T* place, Sum(&p)[2], auto& slopes) {
      constexpr bool kSlopes = std::is_same_v<decltype(slopes), Sum(&)[2]>;
      multiply_turned<kSize, kStride, Z::kAhead>(thread, p, logits.stays(plan, place, begin, j) + of_strip,
                                                 logits.comes(plan, place, begin, j));
      if constexpr (kRelative)
        add_shifted<kSize, kPairs, Z::kAhead>(thread, p, found, logits.comes(plan, place, begin, j, 1),
                                              logits.window_of(plan, place, begin, j) + of_strip);
      if constexpr (kDistances)
        hide_unseen_distances(thread, a, {tile.window_first, tile.window_end}, tile.end, tile.from, meets(), p);
      else hide_unseen<true>(thread, a, real, tile.from, meets(), p);
      by_normaliser(a, [&](const auto& normaliser) {
        MH_FOR (c, 2)
          MH_FOR (e, 2) {
            float known[4];
            thread.read(known, &of_tile[j * a.queries + 8 * c + e].lse2);
            MH_FOR (r, 2) {
              float& x = p[c].x[2 * r + e];
              const float product = x;
              x = thread.exp2(normaliser.logarithm(thread, product) - known[0]) * known[1];
              if constexpr (kSlopes) slopes[c].x[2 * r + e] = normaliser.by_slope(thread, x, x, product);
            }
          }
      });
    };
    const auto gradients_of = [&](int i, int begin, const T* place, Sum(&x)[2]) {
      if constexpr (kDistances)
        add_shifted<kSize, kPairs, Z::kAhead>(thread, x, found, given.comes(plan, place, begin, i, 1),
                                              given.window_of(plan, place, begin, i) + of_strip);
      else
        multiply_turned<kSize, kStride, Z::kAhead>(thread, x, given.stays(plan, place, begin, i) + of_strip,
                                                   given.comes(plan, place, begin, i));
    };
    if (whole) ring.await(thread, load);
    const auto each = [&](int begin, int part_end, int offset, const auto& before, const auto& work) {
      if (!whole) return each_part(thread, ring, plan.heads, begin, part_end, load, before, work);
      before();
      work(0, part_end, ring.place() + offset);
    };
    const auto nothing = [] {};
    const int of_given = a.in_heads * 16 * kStride;
    if constexpr (kOfKeys)
      each(0, a.out_heads, of_given, nothing, [&](int begin, int part_end, const T* place) {
        MH_ROLLED  // as in mixed_forward
        for (int i = begin + at.group; i < part_end; i += plan.groups) {
          Sum x[2];
          gradients_of(i, begin, place, x);
          if (a.has_dropout() && !a.dropout_before_mixing) drop(i, x);
          gradient.put(thread, i, x);
        }
      });
    if constexpr (kOfValues)
      each(0, a.in_heads, 0, nothing, [&](int begin, int part_end, const T* place) {
        MH_ROLLED
        for (int j = begin + at.group; j < part_end; j += plan.groups) {
          Sum p[2];
          probabilities_of(j, begin, place, p, nothing);
          if (a.has_dropout() && a.dropout_before_mixing) drop(j, p);
          probability.put(thread, j, p);
        }
      });
    if (whole) thread.barrier();  // otherwise the next part begins with a barrier
    if constexpr (kOfValues) {
      Sum mixed[kOwn][2];
      const auto mix = [&] {
        if (of_probabilities.shared) of_probabilities.mix(thread, mixed, probability);
        else mix_columns(thread, mixed, probability, a.in_heads, matrix_of(a.matrix), a.out_heads, own, end);
        if (a.has_dropout() && !a.dropout_before_mixing) {
          MH_FOR (o, kOwn)
            if (own + o < end) drop(own + o, mixed[o]);
        }
      };
      each(of_block, end, of_given, mix, [&](int begin, int part_end, const T* place) {
        MH_FOR (o, kOwn) {
          if (own + o < begin || own + o >= part_end) continue;
          multiply_add<kSize, kStride>(thread, sums_v[o], mixed[o], given.comes(plan, place, begin, own + o));
        }
      });
    }
    if constexpr (kOfKeys) {
      Sum dp[kOwn][2];
      const auto mix = [&] {
        if (of_gradients.shared) of_gradients.mix(thread, dp, gradient);
        else mix_columns(thread, dp, gradient, a.out_heads, matrix_of(a.matrix_transposed), a.in_heads, own, in_end);
        if (a.has_dropout() && a.dropout_before_mixing) {
          MH_FOR (o, kOwn)
            if (own + o < in_end) drop(own + o, dp[o]);
        }
      };
      each(of_block, in_end, 0, mix, [&](int begin, int part_end, const T* place) {
        MH_FOR (o, kOwn) {
          if (own + o < begin || own + o >= part_end) continue;
          const int j = own + o;
          Sum slopes[2];
          if (exchanged) {
            probability.get(thread, j, slopes);
            MH_FOR (c, 2)
              MH_FOR (e, 4) slopes[c].x[e] *= a.scale;
          } else {
            Sum p[2];
            probabilities_of(j, begin, place, p, slopes);
          }
          MH_FOR (c, 2)
            MH_FOR (e, 2) {
              const float of_query = of_tile[j * a.queries + 8 * c + e].delta;
              MH_FOR (r, 2) slopes[c].x[2 * r + e] *= dp[o][c].x[2 * r + e] * of_gradients.scale(o) - of_query;
            }
          multiply_add<kColumns, kStride>(thread, sums_k[o], slopes, logits.comes(plan, place, begin, j) + column);
        }
      });
    }
    if (whole) ring.end();
  }
  if constexpr (kDistances) {
    float* const to = tensors.dr + (b * a.in_heads + own) * rows_end * int64_t{a.key_size};
    MH_FOR (o, kOwn)
      MH_FOR (n, kColumns / 8)
        MH_FOR (x, 4) {
          const int row = first + 16 * at.strip + at.g + x / 2 * 8, c = column + n * 8 + 2 * at.t + x % 2;
          if (own + o < in_end && row < rows_end && c < a.key_size)
            to[(int64_t{o} * rows_end + row) * a.key_size + c] = sums_k[o][n].x[x];
        }
    thread.template wait<0>();
  } else {
    // Scales of values; without a tile there was no barrier.
    float scales[kOwn];
    if constexpr (kOfValues) {
      thread.barrier();
      MH_FOR (o, kOwn) scales[o] = of_probabilities.scale(o);
    }
    store_in_turns(thread, plan, at, [&](int turn) {
      T* const through = rows + (turn * at.rows + at.strip * 16) * kStride;
      MH_FOR (o, kOwn) {
        if constexpr (kOfKeys) {
          if (own + o < a.in_heads)
            store_rows<kSize, kStride>(thread, through, sums_k[o], {1, 1},
                                       row_of(dk, b, tensors.joined ? a.key_head(own + o) : own + o, 0), dk.row_stride,
                                       first + 16 * at.strip, rows_end, a.key_size, a.aligned);
        }
        if constexpr (kOfValues) {
          if (own + o < a.out_heads)
            store_rows<kSize, kStride>(thread, through, sums_v[o], {scales[o], scales[o]},
                                       row_of(dv, b, tensors.joined ? a.value_head(own + o) : own + o, 0),
                                       dv.row_stride, first + 16 * at.strip, rows_end, a.value_size, a.aligned);
        }
      }
    });
  }
}

}  // namespace mh::kernels
