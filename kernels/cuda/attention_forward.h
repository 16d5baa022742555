// Forward pass of attention without head mixing.
//
// Tiling: a block of 4 warps (2 with relative positions and rows of more than 512 bytes) computes 16 queries per warp,
// of one head of one batch row, and loops over tiles of keys. Shared memory holds the tile of queries, and one or two
// pipeline stages, each with a tile of keys and a tile of values; with two stages cp.async loads the next stage
// during the products. The registers of a warp hold fp32 accumulators (16, head size), the logits of the tile, and the
// running maximum and sum of each query (online softmax). Products are tensor-core instructions, m16n8k16 or m16n8k8.
// If the grid has too few blocks, the keys are split across blocks (split-KV), and a second kernel combines the partial
// results in fixed order.
//
// Without relative positions a block takes (kQueries + 2 * kStages * kKeys) * (kSize + 8) elements of shared memory,
// and a lane has kSize / 2 accumulators of outputs and kKeys / 2 of logits. For head size 64 in bf16 a block has 64
// queries, tiles of 64 keys, 2 stages and 45 KiB, and a lane has 32 + 32 accumulators; 512 queries of 16 heads take 128
// blocks for each batch row.
#pragma once

#include "ceil_div.h"
#include "cuda/relative.h"

namespace mh::kernels {

// The tile sizes and the shared memory of attention_forward(). kWarps and kKeys are limited by shared memory and
// registers.
template <class T, int kSize, bool kRelative = false>
struct AttentionTiles {
  static constexpr int kRowBytes = kSize * static_cast<int>(sizeof(T));
  static constexpr int kWarps = kRelative && kRowBytes > 512 ? 2 : 4, kThreads = 32 * kWarps, kQueries = 16 * kWarps;
  static constexpr int kStride = kSize + kPad, kStages = kRelative ? kRelativeStages<T, kSize> : 2;
  static constexpr int kNonRelativeKeys = kRowBytes <= 256 ? 64 : kRowBytes <= 512 ? 32 : 16;
  static constexpr int kKeys = kRelative ? kRelativeTileRows<T, kSize> : kNonRelativeKeys;

  struct alignas(16) Shared
      : std::conditional_t<kRelative, QueryRelativeSmem<T, kSize, kWarps, kKeys>, NoRelativeSmem> {
    T q[kQueries * kStride];
    T k[kStages][kKeys * kStride], v[kStages][kKeys * kStride];
  };
};

// Computes `accum = rows · columnsᵀ` for `accum` (16, 8 kColumnFragments), `rows` (16, kSize) and `columns` (8
// kColumnFragments, kSize). Both operands are in shared memory with row stride kStride. Called by all lanes of a warp.
template <int kSize, int kStride, int kMaxPrefetch = 4, int kColumnFragments, class Thread, class T>
MH_DEVICE void multiply_transposed(const Thread& thread, Accumulator (&accum)[kColumnFragments], const T* rows,
                                   const T* columns) {
  MH_FOR (n, kColumnFragments) accum[n] = Accumulator{};
  // Unroll count of the loop below: the number of 16-column fragments that are loaded in advance, limited by registers.
  [[maybe_unused]] constexpr int kPrefetch = sizeof(T) == 4 && kMaxPrefetch > 1 ? 1 : kMaxPrefetch;
  MH_UNROLL_PREFETCH
  for (int c = 0; c < kSize; c += 16) {
    FragmentA<T> frag_a;
    load(thread, frag_a, rows + c, kStride);
    MH_UNROLL
    for (int n = 0; n < kColumnFragments; n += 2) {
      FragmentB<T> frag_b[2];
      load_transposed(thread, frag_b, columns + n * 8 * kStride + c, kStride);
      multiply_accurate(thread, accum[n], frag_a, frag_b[0]);
      multiply_accurate(thread, accum[n + 1], frag_a, frag_b[1]);
    }
  }
}

// Whether a row takes at least 1024 bytes, as 256 elements in fp32 do. The accumulators (16, kSize) of one head then
// take half of a warp's registers, and fp32 fragments take twice as many registers as 16-bit fragments.
template <class T, int kSize>
constexpr bool kHasWideRows = kSize * sizeof(T) >= 1024;

// Computes `accum += a · rows` for `accum` (16, kSize), `a` (16, 8 kInnerFragments), which is rounded to T, and
// `rows` (8 kInnerFragments, kSize) in shared memory with row stride kStride. Called by all lanes of a warp.
template <int kSize, int kStride, int kInnerFragments, class Thread, class T>
MH_DEVICE void multiply_add(const Thread& thread, Accumulator (&accum)[kSize / 8],
                            const Accumulator (&a)[kInnerFragments], const T* rows) {
  MH_UNROLL
  for (int c = 0; c < kInnerFragments; c += 2) {
    FragmentA<T> frag_a;
    round_to_fragment_a(thread, frag_a, a[c], a[c + 1]);
    MH_UNROLL
    for (int n = 0; n < kSize / 8; n += 2) {
      FragmentB<T> frag_b[2];
      if constexpr (kHasWideRows<T, kSize>) thread.warp_barrier();  // prevents an early load of the next fragment
      load(thread, frag_b, rows + c * 8 * kStride + n * 8, kStride);
      multiply(thread, accum[n], frag_a, frag_b[0]);
      multiply(thread, accum[n + 1], frag_a, frag_b[1]);
    }
  }
}

// Return the sum or the maximum of x over the four lanes that hold the same row of a fragment.
template <class Thread>
MH_DEVICE float row_sum(const Thread& thread, float x) {
  x += thread.shuffle_xor(x, 1);
  return x + thread.shuffle_xor(x, 2);
}
template <class Thread>
MH_DEVICE float row_maximum(const Thread& thread, float x) {
  x = fmaxf(x, thread.shuffle_xor(x, 1));
  return fmaxf(x, thread.shuffle_xor(x, 2));
}

// The query tile of a block: the queries from `first` on of head `head` and batch row `b`. visible_range: the keys that
// at least one of these queries sees, within the block's split of the keys (without splits, within all keys).
struct QueryTile {
  int64_t b, head;
  int first;
  IndexRange visible_range;
};

// Streams the keys visible to a query tile through shared.k, in tiles of Traits::kKeys keys, and, if kLoadValues, their
// values through shared.v. Calls visit(s, end, stage, ring_row, distance_column) for each tile, where s is its first
// key, `end` is the end of the visible keys, and `stage` and `ring_row` are as in for_each_tile(). Called by all
// threads of a block. With relative positions or a position bias a tile is within one key range, and `end` is the end
// of the visible keys of this key range. distance_column: with a position bias, the column for query 0 and key s.
template <class Traits, class T, int kSize, bool kRelative, bool kLogitTerms, bool kLoadValues, class Thread,
          class Shared, class Visit>
MH_DEVICE void for_each_key_tile(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors,
                                 const QueryTile& tile, Shared& shared, const Visit& visit) {
  const int64_t b = tile.b, head = tile.head;
  const int first = tile.first;
  const StridedTensor<const T>&k = tensors.k, &v = tensors.v;
  const T* k_data = row_of(k, b, params.k_head(head), 0);
  const T* v_data = kLoadValues ? row_of(v, b, params.v_head(head), 0) : nullptr;
  const bool has_position_bias = kLogitTerms && params.has_position_bias();
  const int num_bias_ranges = has_position_bias ? params.position_bias.num_key_ranges : 1;
  for (int range_index = 0; range_index < (kRelative ? params.relative.num_key_ranges : num_bias_ranges);
       ++range_index) {
    IndexRange range = tile.visible_range;
    if (has_position_bias) {
      range = intersect(tile.visible_range, params.position_bias.key_ranges[range_index]);
      if (range.first >= range.end) continue;
    }
    if constexpr (kRelative) {
      range = intersect(tile.visible_range, params.relative.key_ranges[range_index]);
      if (range.first >= range.end) continue;
    }
    const auto load = [&](int s, int stage, [[maybe_unused]] int ring_row, [[maybe_unused]] bool is_first) {
      load_tile<Traits::kKeys, kSize, Traits::kStride>(
          thread, shared.k[stage], {k_data, k.row_stride, range.end, params.key_size, params.has_aligned_rows}, s);
      if constexpr (kLoadValues)
        load_tile<Traits::kKeys, kSize, Traits::kStride>(
            thread, shared.v[stage], {v_data, v.row_stride, range.end, params.value_size, params.has_aligned_rows}, s);
      if constexpr (kRelative) {
        if (is_first) shared.load_first_window(thread, params, head, params.relative.key_ranges[range_index], first, s);
        else shared.advance_window(thread, params, head, params.relative.key_ranges[range_index], first, s, ring_row);
      }
    };
    for_each_tile<Traits::kStages, Traits::kKeys>(
        thread, range.first, range.end, load, [](int ring_row) { return Shared::next_ring_row(ring_row); },
        [&](int s, int stage, int ring_row) {
          visit(s, range.end, stage, ring_row,
                has_position_bias ? distance_row(params, params.position_bias.key_ranges[range_index], 0, s) : 0);
        });
  }
}

// Returns the address of the partial output of one query and one split, value_size + 2 elements: the sum of the values
// weighted by exponentials, then the maximum logit times log2(e), then the sum of the exponentials. batch_head:
// b * heads + head for batch row b. The caller sets params.value_size to 0 if there are no outputs.
MH_DEVICE float* partial_out_of(const AttentionParams& params, const AttentionTensors& tensors, int batch_head,
                                int query, int split) {
  return tensors.partial_out +
         ((batch_head * params.queries + query) * tensors.num_splits + split) * (params.value_size + 2);
}

// Divides `range`, in tiles of `size` keys, among the splits; returns the keys of split `split`, which may be empty.
MH_DEVICE IndexRange split_of(const IndexRange& range, int size, int split, int num_splits) {
  const int tiles = ceil_div(range.end - range.first, size), split_size = ceil_div(tiles, num_splits) * size;
  const int first = range.first + split * split_size, end = first + split_size;
  return {first, end < range.end ? end : range.end};
}

// Returns the log-sum-exp (nats) ln(running_sum * 2^running_max); +inf if running_sum is 0.
template <class Thread>
MH_DEVICE float lse_of(const Thread& thread, float running_max, float running_sum) {
  return running_sum > 0 ? (running_max + thread.log2(running_sum)) * kLn2 : INFINITY;
}

// Computes tensors.out and tensors.lse; lse is +inf for a fully masked row. Without kComputeOut it computes only
// tensors.lse and does not access v and out. With several splits it writes only tensors.partial_out, and
// combine_splits() writes tensors.out and tensors.lse. Grid: (tiles of queries, batch * heads, num_splits).
//
// With kLogitTerms the running maximum and sum of the first split begin with the sink, so that combine_splits() does
// not read sinks; a soft cap takes one tanh and a position bias one load, through the L1 cache, for each logit.
template <class T, int kSize, bool kComputeOut, bool kRelative, bool kLogitTerms, class Thread>
MH_DEVICE void attention_forward(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors,
                                 typename AttentionTiles<T, kSize, kRelative>::Shared& shared) {
  using Traits = AttentionTiles<T, kSize, kRelative>;
  const StridedTensor<const T>& q = tensors.q;
  const StridedTensor<T>& out = tensors.out;
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int queries = static_cast<int>(params.queries), g = thread.lane() / 4, t = thread.lane() % 4;
  // The last query tiles are computed first, since under a causal mask they see the most keys.
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * Traits::kQueries, row = first + thread.warp() * 16 + g;
  const IndexRange visible_range = split_of(visible_keys<kLogitTerms>(params, b, first, Traits::kQueries),
                                            Traits::kKeys, thread.block_z(), tensors.num_splits);
  load_tile<Traits::kQueries, kSize, Traits::kStride>(
      thread, shared.q, matrix_of_head(q, b, head, queries, params.key_size, params.has_aligned_rows), first);
  if constexpr (kRelative) {
    thread.commit_group();
    thread.template wait_group<0>();
    add_biases<Traits::kQueries, kSize>(thread, params, head, shared.q, shared.q_v);
  }
  // Commits the copies of the queries: the loop over the tiles commits none if the tiles have no position bias.
  if constexpr (kLogitTerms) thread.commit_group();

  Accumulator out_accum[kSize / 8];
  float running_max[2] = {-INFINITY, -INFINITY}, running_sum[2] = {0, 0};
  if (kLogitTerms && params.sinks != nullptr && thread.block_z() == 0) {
    // The lanes of a row add up their sums, so that only lane t = 0 counts the sink. A fully masked row has no sink:
    // its log-sum-exp is +inf.
    MH_FOR (r, 2) {
      const IndexRange row_keys = visible_keys<kLogitTerms>(params, b, row + 8 * r, 1);
      if (row + 8 * r >= queries || row_keys.first >= row_keys.end) continue;
      running_max[r] = params.sinks[head] * kLog2E, running_sum[r] = t == 0 ? 1 : 0;
    }
  }
  [[maybe_unused]] const LogitTerms logit_terms(params, head);
  T* const warp_q = shared.q + thread.warp() * 16 * Traits::kStride;
  for_each_key_tile<Traits, T, kSize, kRelative, kLogitTerms, kComputeOut>(
      thread, params, tensors, {b, head, first, visible_range}, shared,
      [&](int s, int end, int stage, [[maybe_unused]] int ring_row, [[maybe_unused]] int distance_column) {
        thread.barrier();
        Accumulator p[Traits::kKeys / 8];
        multiply_transposed<kSize, Traits::kStride>(thread, p, warp_q, shared.k[stage]);
        if constexpr (kRelative) shared.add_position_term(thread, p, ring_row);
        apply_mask<false, kLogitTerms>(thread, params, end, first + thread.warp() * 16, s, p);
        if constexpr (kLogitTerms) {
          MH_FOR (n, Traits::kKeys / 8)
            MH_FOR (i, 4) {
              float unused_slope;
              p[n].x[i] = logit_terms.logit(thread, p[n].x[i],
                                            distance_column + n * 8 + 2 * t + i % 2 - (row + i / 2 * 8), unused_slope);
            }
        }
        // For softmax the scale of the logits is applied in the exponents; since it is positive, the same key has the
        // maximum before and after scaling.
        float factor = (kLogitTerms ? 1 : params.scale) * kLog2E;
        if (params.normaliser == Normaliser::sigsoftmax) {
          factor = 1;
          MH_FOR (n, Traits::kKeys / 8)
            MH_FOR (i, 4)
              p[n].x[i] = SigsoftmaxExponent{kLogitTerms ? 1 : params.scale}.log2_numerator(thread, p[n].x[i]);
        }
        MH_FOR (r, 2) {
          float new_max = p[0].x[2 * r];
          MH_FOR (n, Traits::kKeys / 8)
            MH_FOR (e, 2) new_max = fmaxf(p[n].x[2 * r + e], new_max);
          new_max = fmaxf(row_maximum(thread, new_max) * factor, running_max[r]);
          // If no key has been visible so far, or all logits are -inf, `finite_max` is 0 instead of -inf, so that the
          // exponentials are 0 instead of NaN.
          const float finite_max = new_max == -INFINITY ? 0 : new_max,
                      rescale = thread.exp2(running_max[r] - finite_max);
          running_max[r] = new_max;
          running_sum[r] *= rescale;
          MH_FOR (n, Traits::kKeys / 8)
            MH_FOR (e, 2) {
              float& exponential = p[n].x[2 * r + e];
              exponential = thread.exp2(exponential * factor - finite_max);
              running_sum[r] += exponential;
            }
          if constexpr (kComputeOut) {
            MH_FOR (n, kSize / 8) out_accum[n].x[2 * r] *= rescale, out_accum[n].x[2 * r + 1] *= rescale;
          }
        }
        if constexpr (kComputeOut) {
          if (params.has_dropout()) apply_dropout(params, b, head, row, s + 2 * t, p);
          multiply_add<kSize, Traits::kStride>(thread, out_accum, p, shared.v[stage]);
        }
      });
  thread.template wait_group<0>();
  thread.barrier();
  MH_FOR (r, 2) running_sum[r] = row_sum(thread, running_sum[r]);
  if (tensors.num_splits > 1) {
    MH_FOR (r, 2) {
      if (row + 8 * r >= queries) continue;
      float* const partial = partial_out_of(params, tensors, thread.block_y(), row + 8 * r, thread.block_z());
      if constexpr (kComputeOut) {
        MH_FOR (n, kSize / 8)
          MH_FOR (e, 2)
            if (const int column = n * 8 + 2 * t + e; column < params.value_size)
              partial[column] = out_accum[n].x[2 * r + e];
      }
      if (t == 0) partial[params.value_size] = running_max[r], partial[params.value_size + 1] = running_sum[r];
    }
    return;
  }
  const float head_scale = params.head_scales != nullptr ? params.head_scales[b * params.head_scales_stride + head] : 1;
  float factor[2];
  MH_FOR (r, 2) {
    factor[r] = running_sum[r] > 0 ? head_scale / running_sum[r] : 0;
    if (t == 0 && row + 8 * r < queries)
      tensors.lse[thread.block_y() * params.queries + row + 8 * r] = lse_of(thread, running_max[r], running_sum[r]);
  }
  if constexpr (kComputeOut)
    store_rows<kSize, Traits::kStride>(
        thread, warp_q, out_accum, factor,
        matrix_of_head(out, b, head, queries, params.value_size, params.has_aligned_rows), first + thread.warp() * 16);
}

// Combines the splits of attention_forward() into tensors.out and tensors.lse, in fixed order.
//
// Tiling: one warp computes one query, and a lane every 32nd column of the output; a block has 4 warps. Grid: (queries
// / 4 rounded up, batch * heads). There is no shared memory, and no barrier: a lane holds the maximum, the sum of the
// exponentials and the sum of one column in registers. Each lane reads the maxima and sums of all splits, and for each
// of its columns the maxima again; the lanes of a warp read the same address at the same time. For values of size 64
// and 4 splits the partial outputs of a query take 1056 bytes.
template <class T, class Thread>
MH_DEVICE void combine_splits(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors) {
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int row = thread.block_x() * 4 + thread.warp(), size = params.value_size;
  if (row >= params.queries) return;
  const auto partial_of = [&](int split) { return partial_out_of(params, tensors, thread.block_y(), row, split); };
  float max_logit = -INFINITY, total_sum = 0;
  for (int split = 0; split < tensors.num_splits; ++split) {
    const float split_max = partial_of(split)[size];
    max_logit = split_max > max_logit ? split_max : max_logit;
  }
  const float finite_max = max_logit == -INFINITY ? 0 : max_logit;
  for (int split = 0; split < tensors.num_splits; ++split)
    total_sum += partial_of(split)[size + 1] * thread.exp2(partial_of(split)[size] - finite_max);
  if (thread.lane() == 0) tensors.lse[thread.block_y() * params.queries + row] = lse_of(thread, max_logit, total_sum);
  const float head_scale = params.head_scales != nullptr ? params.head_scales[b * params.head_scales_stride + head] : 1,
              factor = total_sum > 0 ? head_scale / total_sum : 0;
  for (int c = thread.lane(); c < size; c += 32) {
    float sum = 0;
    for (int split = 0; split < tensors.num_splits; ++split)
      sum += partial_of(split)[c] * thread.exp2(partial_of(split)[size] - finite_max);
    store_element(thread, row_of(tensors.out, b, head, row) + c, sum * factor);
  }
}

}  // namespace mh::kernels
