// Row mix: head mixing on the tensor cores, one or two queries at a time, for 16-bit types and few heads. A tile of the
// probabilities of all heads, or of their gradients, is in shared memory as (heads, queries, keys). With the transpose
// of the matrix m (h, hv) of a query as operand A,
//
//   P̄ (hv, keys) = mᵀ (hv, h) · P (h, keys)
//
// is a tensor-core product whose inner dimension is the heads. With up to 8 heads one m16n8k16 instruction mixes two
// queries and 8 keys, by a block-diagonal operand A; with up to 16 heads one query and 8 keys. So a matrix for each
// query costs no more than a shared matrix.
//
// All kernels process a tile in the same steps, separated by barriers: each warp computes the products of its own heads
// and writes them into the tile; each warp mixes its own queries in place; each warp reads the mixed values of its own
// heads.
#pragma once

#include <type_traits>

#include "cuda/head_mixing/mixing.h"

namespace mh::kernels {

// Returns n rounded down to a multiple of 16, but at most `max_rows`.
constexpr int floor_to_row_tiles(int n, int max_rows) { return n / 16 * 16 < max_rows ? n / 16 * 16 : max_rows; }

// The sizes of the row-mix kernels. A block has kWarps warps, and each warp kWarpHeads heads: in total at most 8 heads,
// or at most 16 if kWarpHeads is 2.
template <class T, int kSize_, int kWarps_, int kWarpHeads_>
struct RowMixTraits {
  static constexpr int kSize = kSize_, kWarps = kWarps_, kWarpHeads = kWarpHeads_, kStride = kSize + kPad;
  static constexpr int kHeads = kWarps * kWarpHeads;            // maximum number of heads
  static constexpr int kMatrixHeads = kHeads <= 8 ? 8 : 16;     // rows of a mixing matrix on the tensor cores
  static constexpr int kQueriesPerProduct = 16 / kMatrixHeads;  // queries that one product of 16 rows mixes
  // Queries of a block, limited so that their accumulators (kWarpHeads heads of kSize columns) take at most half of a
  // warp's registers; at most 32 with 4 warps, since each of 4 warps mixes more queries than each of 8.
  static constexpr int kQueries = floor_to_row_tiles(4096 / (kWarpHeads * kSize), kWarps == 4 ? 32 : 64);
  static constexpr int kKeys = kWarpHeads * kSize <= 64 ? 32 : 16;  // keys of a streamed tile
  using Probability = typename ExchangeType<T>::Probability;
  // Returns the first query of matrix instruction u of a warp, counted from the first query of the tile. The matrix
  // instructions of a tile are assigned to the warps round-robin.
  static constexpr int query_of(int warp, int u) { return (warp + u * kWarps) * kQueriesPerProduct; }
};

// The tile (heads, kRows, kKeys) of a block in shared memory, of bf16 or fp16 elements. If there are fewer heads than a
// product takes, the tile has one more head, of zeros, that replaces the missing heads.
template <int kRows_, int kKeys_>
struct MixTile {
  static constexpr int kRows = kRows_, kKeys = kKeys_, kRowTiles = kRows / 16;
  static constexpr int kStride = kKeys + kPad, kHeadStride = kRows * kStride + kPad;  // padded to avoid bank conflicts
  uint16_t* memory;
  int zero_head;  // index of the additional head of zeros, if the tile has this head

  // Returns the number of bytes of the tile. kMatrixHeads: number of heads that a product takes.
  template <int kMatrixHeads>
  static constexpr int bytes(const AttentionParams& params) {
    const bool needs_zero_head = params.heads < kMatrixHeads || params.value_heads < kMatrixHeads;
    return ((params.heads > params.value_heads ? params.heads : params.value_heads) + (needs_zero_head ? 1 : 0)) *
           kHeadStride * 2;
  }
  // Returns tile number `index` of the tiles that begin at `memory`, and writes its head of zeros, which is valid after
  // the next barrier. Called by all threads of a block.
  template <int kMatrixHeads, class Thread>
  static MH_DEVICE MixTile create(const Thread& thread, const AttentionParams& params, void* memory, int index = 0) {
    const MixTile tile{static_cast<uint16_t*>(memory) + index * (bytes<kMatrixHeads>(params) / 2),
                       bytes<kMatrixHeads>(params) / (kHeadStride * 2) - 1};
    if (params.heads < kMatrixHeads || params.value_heads < kMatrixHeads)
      for (int i = thread.index(); i < kHeadStride; i += thread.threads())
        tile.memory[tile.zero_head * kHeadStride + i] = 0;
    return tile;
  }
  // Returns the address of the rows of row tile `row_tile` of a head, from column `column` on.
  template <class X>
  MH_DEVICE X* at(int head, int row_tile, int column = 0) const {
    return reinterpret_cast<X*>(memory + head * kHeadStride + row_tile * 16 * kStride + column);
  }
  // Stores `accum` (16, kKeys), the accumulators of a warp, to a row tile of a head, rounded to X.
  template <class X, class Thread>
  MH_DEVICE void put(const Thread& thread, int head, int row_tile, const Accumulator (&accum)[kKeys / 8]) const {
    X* const to = at<X>(head, row_tile, thread.lane() % 4 * 2) + thread.lane() / 4 * kStride;
    MH_FOR (n, kKeys / 8)
      MH_FOR (r, 2) store_pair(thread, to + 8 * r * kStride + n * 8, accum[n].x[2 * r], accum[n].x[2 * r + 1]);
  }
  // Loads columns `column` … `column` + 15 of a row tile of a head into accumulators (16, 16).
  template <class X, class Thread>
  MH_DEVICE void get(const Thread& thread, int head, int row_tile, int column, Accumulator (&accum)[2]) const {
    FragmentA<X> frag_a;
    load(thread, frag_a, at<X>(head, row_tile, column), kStride);
    widen(thread, accum, frag_a);
  }
};

// Loads the operand A (16, 16) that is the transpose of 16 rows and 16 columns of a tile of 16-bit elements.
template <class Thread, class T>
MH_DEVICE void load_transposed_a(const Thread& thread, FragmentA<T>& to, const T* tile, int stride) {
  thread.load_matrices_transposed(
      to.x, tile + (thread.lane() % 8 + thread.lane() / 16 * 8) * stride + thread.lane() / 8 % 2 * 8);
}

// Returns the mixing matrix of query `query` of batch row b; of the last query if this query does not exist. queries:
// params.queries.
MH_DEVICE const float* matrix_of_query(const AttentionParams& params, int64_t b, int query, int queries) {
  return params.mixing_matrix + b * params.matrix_batch_stride +
         (query < queries ? query : queries - 1) * params.matrix_query_stride;
}

// The mixing matrices of the one or two queries of a product.
struct ProductMatrices {
  const float *first, *second;
};

// Returns the matrices of product u of a warp, in the tile of queries that begins at query `query`. queries:
// params.queries.
template <class Traits, class Thread>
MH_DEVICE ProductMatrices matrices_of_product(const Thread& thread, const AttentionParams& params, int64_t b, int query,
                                              int queries, int u) {
  const int first = query + Traits::query_of(thread.warp(), u);
  return {matrix_of_query(params, b, first, queries), matrix_of_query(params, b, first + 1, queries)};
}

// A lane's part of operand A of a product that mixes the heads of one or two queries; its rows come from the
// mixing matrices of these queries. In fp16 each row of the operand is divided by a power of two, so that its
// elements are in range.
template <class X, int kMatrixHeads>
struct MixMatrix {
  uint32_t x[2][kMatrixHeads / 8];
  float scale[2];  // power of two by which each of the lane's two rows was divided

  // Loads the matrix of the first query and, if a product mixes two queries, of the second query, from global memory;
  // null: zeros. kToValueHeads: the product mixes query heads to value heads, by the transposed matrix; otherwise value
  // heads to query heads.
  template <bool kToValueHeads, class Thread>
  MH_DEVICE void read(const Thread& thread, const AttentionParams& params, ProductMatrices matrices) {
    const int rows = kToValueHeads ? params.value_heads : params.heads,
              columns = kToValueHeads ? params.heads : params.value_heads,
              row_stride = kToValueHeads ? 1 : params.value_heads,
              column_stride = kToValueHeads ? params.value_heads : 1;
    const int g = thread.lane() / 4, t = thread.lane() % 4;
    MH_FOR (r, 2) {
      const float* const matrix = kMatrixHeads == 8 && r == 1 ? matrices.second : matrices.first;
      const int row = kMatrixHeads == 16 ? g + 8 * r : g;
      float elements[kMatrixHeads / 8][2], max_magnitude = 0;
      MH_FOR (p, kMatrixHeads / 8)
        MH_FOR (e, 2) {
          const int column = 8 * p + 2 * t + e;
          elements[p][e] = matrix != nullptr && row < rows && column < columns
                               ? matrix[row * row_stride + column * column_stride]
                               : 0;
          max_magnitude = fmaxf(max_magnitude, fabsf(elements[p][e]));
        }
      scale[r] = 1;
      if constexpr (std::is_same_v<X, Fp16>) {
        scale[r] = floor_pow2(row_maximum(thread, max_magnitude));
        const float inverse = reciprocal_of_pow2(scale[r]);
        MH_FOR (p, kMatrixHeads / 8)
          MH_FOR (e, 2) elements[p][e] *= inverse;
      }
      MH_FOR (p, kMatrixHeads / 8) x[r][p] = thread.pack(elements[p][0], elements[p][1], X{});
    }
  }
  // Writes operand A of the product to `a`: block-diagonal if the product mixes two queries.
  MH_DEVICE void to_fragment_a(uint32_t (&a)[4]) const {
    if constexpr (kMatrixHeads == 8) a[0] = x[0][0], a[1] = 0, a[2] = 0, a[3] = x[1][0];
    else a[0] = x[0][0], a[1] = x[1][0], a[2] = x[0][1], a[3] = x[1][1];
  }
};

// Calls body(std::true_type) if use_fast_path is true, and otherwise body(std::false_type). The code for the fast path
// is then free of branches, so that products and exponentials overlap.
template <class Body>
MH_DEVICE void dispatch_bool(bool use_fast_path, const Body& body) {
  if (use_fast_path) body(std::true_type{});
  else body(std::false_type{});
}

// Mixes the num_in_heads heads of a tile to num_out_heads heads, in place, for the queries of the warp's products.
// Elements of type X are replaced by elements of type To. kScaled: multiplies the result by the scales of the matrices;
// otherwise the caller must. Called by all lanes of a warp.
template <class Traits, class X, class To, bool kScaled, int kWarpProducts, class Tile, class Thread>
MH_DEVICE void mix_queries(const Thread& thread, const Tile& tile, int num_in_heads, int num_out_heads,
                           const MixMatrix<X, Traits::kMatrixHeads> (&matrices)[kWarpProducts]) {
  constexpr int kMatrixHeads = Traits::kMatrixHeads;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  const int head = thread.lane() % kMatrixHeads, query_in_product = kMatrixHeads == 8 ? thread.lane() / 8 % 2 : 0;
  const uint16_t* const from = tile.memory + (head < num_in_heads ? head : tile.zero_head) * Tile::kHeadStride +
                               query_in_product * Tile::kStride + thread.lane() / 16 * 8;
  uint16_t* const to = tile.memory + g * Tile::kHeadStride + 2 * t;
  constexpr int kSecondRowOffset =
      kMatrixHeads == 8 ? Tile::kStride : 8 * Tile::kHeadStride;  // from a lane's first to its second row of a result
  // All loads precede the first store to the tile. No barrier is needed between loads and stores, since the matrix
  // instructions between them are executed by the whole warp at once.
  uint32_t x[kWarpProducts][Tile::kKeys / 16][4];
  MH_FOR (u, kWarpProducts)
    MH_FOR (n, Tile::kKeys / 16)
      thread.load_matrices_transposed(x[u][n], from + Traits::query_of(thread.warp(), u) * Tile::kStride + 16 * n);
  MH_FOR (u, kWarpProducts) {
    uint32_t frag_a[4];
    matrices[u].to_fragment_a(frag_a);
    MH_FOR (n, Tile::kKeys / 16) {
      Accumulator mix_out[2];
      MH_FOR (c, 2) {
        const uint32_t frag_b[2] = {x[u][n][2 * c], x[u][n][2 * c + 1]};
        thread.multiply(mix_out[c].x, frag_a, frag_b, X{});
      }
      MH_FOR (c, 2)
        MH_FOR (r, 2) {
          const float factor = kScaled ? matrices[u].scale[r] : 1;
          thread.store_if(
              g + (kMatrixHeads == 16 ? 8 * r : 0) < num_out_heads,
              to + Traits::query_of(thread.warp(), u) * Tile::kStride + r * kSecondRowOffset + 16 * n + 8 * c,
              thread.pack(mix_out[c].x[2 * r] * factor, mix_out[c].x[2 * r + 1] * factor, To{}));
        }
    }
  }
}

// Computes the products `rows · keysᵀ` for `rows` (kRowTiles * 16, kSize) and `keys` (kKeys, kSize) in shared memory,
// and calls visit(row_tile, accum) for each row tile, where `accum` (16, kKeys) has the products of the row tile. The
// fragments of the keys are loaded once for all row tiles, and the products of the next row tile are issued before a
// row tile is visited. Called by all lanes of a warp.
template <int kSize, int kRowTiles, int kKeys, class Thread, class T, class Visit>
MH_DEVICE void multiply_row_tiles(const Thread& thread, const T* rows, const T* keys, const Visit& visit) {
  constexpr int kStride = kSize + kPad;
  if constexpr (kRowTiles == 1) {
    Accumulator accum[kKeys / 8];
    multiply_transposed<kSize, kStride, kSize / 16>(thread, accum, rows, keys);
    visit(0, accum);
  } else {
    FragmentB<T> frag_b[kSize / 16][kKeys / 8];
    MH_FOR (c, kSize / 16)
      MH_FOR (n, kKeys / 16) {
        FragmentB<T> pair[2];
        load_transposed(thread, pair, keys + n * 16 * kStride + c * 16, kStride);
        frag_b[c][2 * n] = pair[0], frag_b[c][2 * n + 1] = pair[1];
      }
    Accumulator accum[2][kKeys / 8];
    MH_FOR (row_tile, kRowTiles + 1) {
      if (row_tile < kRowTiles) {
        Accumulator(&next_accum)[kKeys / 8] = accum[row_tile % 2];
        MH_FOR (n, kKeys / 8) next_accum[n] = Accumulator{};
        MH_FOR (c, kSize / 16) {
          FragmentA<T> frag_a;
          load(thread, frag_a, rows + row_tile * 16 * kStride + c * 16, kStride);
          MH_FOR (n, kKeys / 8) multiply(thread, next_accum[n], frag_a, frag_b[c][n]);
        }
      }
      if (row_tile > 0) visit(row_tile - 1, accum[(row_tile + 1) % 2]);
    }
  }
}

// The dropout argument of accumulate() and accumulate_transposed() for products without dropout.
struct NoDropout {
  template <int kColumnFragments>
  MH_DEVICE void operator()(int, int, Accumulator (&)[kColumnFragments]) const {}
};

// Computes `accum += X · rows` for `accum` (row tiles, 16, kSize), where X (row tiles, 16, kKeys) is head `head` of
// `tile`, and `rows` (kKeys, kSize) is in shared memory. If kDropout, first applies dropout to X: calls
// dropout(row_tile, column, values) for 16 columns at a time, from `column` on. Called by all lanes of a warp.
template <int kSize, class T, bool kDropout, class Tile, class Thread, class DropoutFn>
MH_DEVICE void accumulate(const Thread& thread, Accumulator (&accum)[Tile::kRowTiles][kSize / 8], const Tile& tile,
                          int head, const T* rows, const DropoutFn& dropout) {
  constexpr int kStride = kSize + kPad;
  MH_FOR (c, Tile::kKeys / 16) {
    FragmentB<T> frag_b[kSize / 8];
    MH_FOR (n, kSize / 16) {
      FragmentB<T> pair[2];
      load(thread, pair, rows + c * 16 * kStride + n * 16, kStride);
      frag_b[2 * n] = pair[0], frag_b[2 * n + 1] = pair[1];
    }
    MH_FOR (row_tile, Tile::kRowTiles) {
      FragmentA<T> frag_a;
      load(thread, frag_a, tile.template at<T>(head, row_tile, 16 * c), Tile::kStride);
      if constexpr (kDropout) {
        Accumulator values[2];
        widen(thread, values, frag_a);
        dropout(row_tile, 16 * c, values);
        round_to_fragment_a(thread, frag_a, values[0], values[1]);
      }
      MH_FOR (n, kSize / 8) multiply(thread, accum[row_tile][n], frag_a, frag_b[n]);
    }
  }
}

// Loads tiles of kRows positions of all heads of one batch row of a tensor into shared memory (heads, kRows, kStride).
// Each warp copies its own heads.
template <class Traits, class T, int kRows>
struct HeadRowLoader {
  static constexpr int kSize = Traits::kSize, kStride = Traits::kStride, kVectorSize = 16 / static_cast<int>(sizeof(T)),
                       kRowVectors = kSize / kVectorSize;
  static constexpr bool kLanesCoverWholeRows = 32 % kRowVectors == 0;  // whether the lanes of a warp cover whole rows
  const T* data[Traits::kWarpHeads];  // addresses of the warp's heads; null: no such head
  int64_t row_stride;
  int heads, size;        // number of heads; elements of a row
  bool has_aligned_rows;  // AttentionParams::has_aligned_rows
  // head_of: head h of the tile is head head_of[h] of the tensor; null: head h.
  template <class Thread>
  MH_DEVICE HeadRowLoader(const Thread& thread, const AttentionParams& params, const StridedTensor<const T>& tensor,
                          int64_t b, const int64_t* head_of, int num_heads, int row_size)
      : row_stride(tensor.row_stride), heads(num_heads), size(row_size), has_aligned_rows(params.has_aligned_rows) {
    MH_FOR (o, Traits::kWarpHeads) {
      const int head = thread.warp() * Traits::kWarpHeads + o;
      data[o] = head < heads ? row_of(tensor, b, kv_head(head_of, head), 0) : nullptr;
    }
  }
  // Starts to load positions `first` … `first` + kRows - 1 to `to` (heads, kRows, kStride); positions from `end` on
  // become zero. Called by all threads of a block.
  template <class Thread>
  MH_DEVICE void load(const Thread& thread, T* to, int first, int end) const {
    MH_FOR (o, Traits::kWarpHeads) {
      const int head = thread.warp() * Traits::kWarpHeads + o;
      if (head >= heads) break;
      T* const head_rows = to + head * kRows * kStride;
      if (kLanesCoverWholeRows && has_aligned_rows && first + kRows <= end) {
        constexpr int kRowsPerStep = 32 / kRowVectors < kRows ? 32 / kRowVectors : kRows;
        const int column = thread.lane() % kRowVectors * kVectorSize, row = thread.lane() / kRowVectors;
        const int bytes = column < size ? 16 : 0;
        const T* from = data[o] + offset_of_row(first + row, row_stride) + column;
        T* const destination = head_rows + row * kStride + column;
        if (row >= kRows) continue;
        MH_FOR (i, kRows / kRowsPerStep) {
          thread.copy_16_bytes(destination + i * kRowsPerStep * kStride, from, bytes);
          from += offset_of_row(kRowsPerStep, row_stride);
        }
      } else {
        load_rows<kSize>(thread, warp_of(thread), head_rows, {data[o], row_stride, end, size, has_aligned_rows}, first,
                         kRows, [](int r) { return r * kStride; });
      }
    }
  }
};

// Load the rows of the queries, of the output gradients, of the keys that each query head reads, and of the values that
// each value head reads.
template <class Traits, class T, int kRows>
struct QueryLoader : HeadRowLoader<Traits, T, kRows> {
  template <class Thread>
  MH_DEVICE QueryLoader(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors, int64_t b)
      : HeadRowLoader<Traits, T, kRows>(thread, params, tensors.q, b, nullptr, params.heads, params.key_size) {}
};
template <class Traits, class T, int kRows>
struct DoutLoader : HeadRowLoader<Traits, T, kRows> {
  template <class Thread>
  MH_DEVICE DoutLoader(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors, int64_t b)
      : HeadRowLoader<Traits, T, kRows>(thread, params, tensors.dout, b, nullptr, params.value_heads,
                                        params.value_size) {}
};
template <class Traits, class T, int kRows>
struct KeyLoader : HeadRowLoader<Traits, T, kRows> {
  template <class Thread>
  MH_DEVICE KeyLoader(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors, int64_t b)
      : HeadRowLoader<Traits, T, kRows>(thread, params, tensors.k, b, params.k_head_of, params.heads, params.key_size) {
  }
};
template <class Traits, class T, int kRows>
struct ValueLoader : HeadRowLoader<Traits, T, kRows> {
  template <class Thread>
  MH_DEVICE ValueLoader(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors, int64_t b)
      : HeadRowLoader<Traits, T, kRows>(thread, params, tensors.v, b, params.v_head_of, params.value_heads,
                                        params.value_size) {}
};

// Streams the rows of two tensors at the positions in `range` through a pipeline, in tiles of kKeys positions: for each
// tile, first the rows of one tensor into a stage, then the rows of the other tensor into the next stage.
template <class Traits, class T, int kKeys>
struct AlternatingLoads {
  const HeadRowLoader<Traits, T, kKeys>& first_loader;
  const HeadRowLoader<Traits, T, kKeys>& second_loader;
  IndexRange range;
  // Index of the next load: even loads are of `first_loader`, odd loads of `second_loader` at the same positions.
  int step = 0;

  // Starts to copy the next rows to a stage; after the last tile it only commits an empty cp.async group.
  template <class Thread>
  MH_DEVICE void load(const Thread& thread, T* stage) {
    if (const int key = range.first + step / 2 * kKeys; key < range.end) {
      if (step % 2 == 0) first_loader.load(thread, stage, key, range.end);
      else second_loader.load(thread, stage, key, range.end);
    }
    ++step;
    thread.commit_group();
  }
};

// The shared memory of a block: resident rows, pipeline stages of streamed rows, and tiles of probabilities or
// gradients.
struct RowMixPlan {
  int num_stages = 0, shared_bytes = 0;  // number of stages, 0: the kernel does not fit; bytes of shared memory
  constexpr RowMixPlan(int resident_bytes, int stage_bytes, int tile_bytes, int max_shared_bytes) {
    const int fixed_bytes = resident_bytes + tile_bytes, free_bytes = max_shared_bytes - fixed_bytes;
    num_stages = free_bytes < stage_bytes                ? 0
                 : free_bytes / stage_bytes < kMaxStages ? free_bytes / stage_bytes
                                                         : kMaxStages;
    shared_bytes = fixed_bytes + num_stages * stage_bytes;
  }
};

// The tile sizes of a kernel with resident queries, which streams keys and values: kQueries queries of a block, and
// kKeys keys of a streamed tile. Traits: an instance of RowMixTraits.
template <class Traits, int kQueries_, int kKeys_>
struct RowMixQueryTiles {
  static constexpr int kQueries = kQueries_, kKeys = kKeys_;
  using Tile = MixTile<kQueries, kKeys>;
  // Number of mixing products of a warp, each of which mixes kQueriesPerProduct queries.
  static constexpr int kWarpProducts = kQueries / Traits::kQueriesPerProduct / Traits::kWarps;
  // Returns the number of elements of a stage, which has the keys or the values of a streamed tile.
  static constexpr int stage_elements(const AttentionParams& params) {
    return (params.heads > params.value_heads ? params.heads : params.value_heads) * kKeys * Traits::kStride;
  }
  // Returns the plan for resident rows of num_resident_heads heads, num_tiles tiles in shared memory, and at most
  // `max_shared_bytes` bytes.
  static constexpr RowMixPlan plan_of(const AttentionParams& params, int num_resident_heads, int num_tiles,
                                      int max_shared_bytes) {
    return {num_resident_heads * kQueries * Traits::kStride * 2, stage_elements(params) * 2,
            num_tiles * Tile::template bytes<Traits::kMatrixHeads>(params), max_shared_bytes};
  }
};

}  // namespace mh::kernels
