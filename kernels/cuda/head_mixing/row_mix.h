// Head mixing query by query on the tensor cores, for 16-bit types. A tile of the probabilities of all heads, or of
// their gradients, is in shared memory as (heads, queries, keys). With the matrix m of a query as the left operand,
//
//   (out heads, keys) = mᵀ (out heads, in heads) · P (in heads, keys)
//
// is a tensor-core product whose inner dimension is the heads: with up to 8 heads one m16n8k16 mixes two queries and 8
// keys (a block-diagonal left operand), with up to 16 heads one query. A matrix for each query costs no more than a
// shared one.
//
// All kernels have the same steps for a tile: each warp multiplies the rows of its own heads and writes the results
// into the tile; all warps mix in place, each its own queries; each warp continues with its own heads.
#pragma once

#include <type_traits>

#include "cuda/head_mixing/mixing.h"

namespace mh::kernels {

// Returns n rounded down to 16, but at most `limit`.
constexpr int floor_to_strips(int n, int limit) { return n / 16 * 16 < limit ? n / 16 * 16 : limit; }

// The sizes of a kernel: kWarps warps, each with kWarpHeads heads: up to 8 heads in all, or up to 16 if kWarpHeads
// is 2.
template <class T, int kSize_, int kWarps_, int kWarpHeads_>
struct RowMix {
  static constexpr int kSize = kSize_, kWarps = kWarps_, kWarpHeads = kWarpHeads_, kStride = kSize + kPad;
  static constexpr int kHeads = kWarps * kWarpHeads;            // maximum number of heads
  static constexpr int kMatrixHeads = kHeads <= 8 ? 8 : 16;     // rows of a mixing matrix on the tensor cores
  static constexpr int kQueriesPerProduct = 16 / kMatrixHeads;  // queries that one product mixes
  // Queries of a block: their results (kWarpHeads heads of kSize columns) take half of a warp's registers; with few
  // warps, each of which mixes more queries, a quarter.
  static constexpr int kQueries = floor_to_strips(4096 / (kWarpHeads * kSize), kWarps == 4 ? 32 : 64);
  static constexpr int kKeys = kWarpHeads * kSize <= 64 ? 32 : 16;  // keys of a tile
  using Probability = typename ExchangeType<T>::Probability;
};

// A block's tile (heads, kRows, kKeys) of either 16-bit type, with a head of zeros for products that take more heads
// than there are.
template <int kRows_, int kKeys_>
struct MixTile {
  static constexpr int kRows = kRows_, kKeys = kKeys_, kStrips = kRows / 16;
  static constexpr int kStride = kKeys + kPad, kHeadStride = kRows * kStride + kPad;  // puts heads in different banks
  uint16_t* memory;
  int zero_head;  // the head of zeros

  // kMatrixHeads: heads of a product.
  template <int kMatrixHeads>
  static constexpr int bytes(const AttentionParams& a) {
    const bool needs_zero_head = a.in_heads < kMatrixHeads || a.out_heads < kMatrixHeads;
    return ((a.in_heads > a.out_heads ? a.in_heads : a.out_heads) + (needs_zero_head ? 1 : 0)) * kHeadStride * 2;
  }
  // Writes the zeros; valid after the next barrier.
  template <int kMatrixHeads, class Thread>
  static MH_DEVICE MixTile create(const Thread& thread, const AttentionParams& a, uint16_t* memory) {
    const MixTile tile{memory, bytes<kMatrixHeads>(a) / (kHeadStride * 2) - 1};
    if (a.in_heads < kMatrixHeads || a.out_heads < kMatrixHeads)
      for (int i = thread.index(); i < kHeadStride; i += thread.threads()) memory[tile.zero_head * kHeadStride + i] = 0;
    return tile;
  }
  // Returns 16 rows of a head, from column `column` on.
  template <class X>
  MH_DEVICE X* at(int head, int strip, int column = 0) const {
    return reinterpret_cast<X*>(memory + head * kHeadStride + strip * 16 * kStride + column);
  }
  // Stores a warp's sums (16, kKeys) of a head, rounded to X.
  template <class X, class Thread>
  MH_DEVICE void put(const Thread& thread, int head, int strip, const Accumulator (&sums)[kKeys / 8]) const {
    X* const to = at<X>(head, strip, thread.lane() % 4 * 2) + thread.lane() / 4 * kStride;
    MH_FOR (n, kKeys / 8)
      MH_FOR (r, 2) put_pair(thread, to + 8 * r * kStride + n * 8, sums[n].x[2 * r], sums[n].x[2 * r + 1]);
  }
  // Loads columns `column` to `column` + 15 of 16 rows.
  template <class X, class Thread>
  MH_DEVICE void get(const Thread& thread, int head, int strip, int column, Accumulator (&sums)[2]) const {
    FragmentA<X> left;
    load(thread, left, at<X>(head, strip, column), kStride);
    widen(thread, sums, left);
  }
};

// Loads (16 columns, 16 rows) of a tile of 16-bit elements as the left operand of a product: its transpose.
template <class Thread, class T>
MH_DEVICE void load_transposed_a(const Thread& thread, FragmentA<T>& to, const T* tile, int stride) {
  thread.load_matrices_transposed(
      to.x, tile + (thread.lane() % 8 + thread.lane() / 16 * 8) * stride + thread.lane() / 8 % 2 * 8);
}

// The left operand that mixes the queries of one product, and the scale of a lane's two rows of the result: in fp16
// each row is scaled by a power of two, so that its largest element is in range.
template <class X, int kMatrixHeads>
struct MixMatrix {
  uint32_t x[2][kMatrixHeads / 8];
  float scale[2];

  // Loads the operand: row i, column j is at matrix[i * row_stride + j * column_stride], of `rows` rows and `columns`
  // columns, for the one query, or for each of two; null: no such query.
  template <class Thread>
  MH_DEVICE void read(const Thread& thread, const float* first, const float* second, int rows, int columns,
                      int row_stride, int column_stride) {
    const int g = thread.lane() / 4, t = thread.lane() % 4;
    MH_FOR (r, 2) {
      const float* const matrix = kMatrixHeads == 8 && r == 1 ? second : first;
      const int row = kMatrixHeads == 16 ? g + 8 * r : g;
      float elements[kMatrixHeads / 8][2], largest = 0;
      MH_FOR (p, kMatrixHeads / 8)
        MH_FOR (e, 2) {
          const int column = 8 * p + 2 * t + e;
          elements[p][e] = matrix != nullptr && row < rows && column < columns
                               ? matrix[row * row_stride + column * column_stride]
                               : 0;
          largest = fmaxf(largest, fabsf(elements[p][e]));
        }
      scale[r] = 1;
      if constexpr (std::is_same_v<X, Fp16>) {
        scale[r] = floor_pow2(row_maximum(thread, largest));
        const float inverse = inverse_pow2(scale[r]);
        MH_FOR (p, kMatrixHeads / 8)
          MH_FOR (e, 2) elements[p][e] *= inverse;
      }
      MH_FOR (p, kMatrixHeads / 8) x[r][p] = thread.pack(elements[p][0], elements[p][1], X{});
    }
  }
  MH_DEVICE void to_fragment_a(uint32_t (&a)[4]) const {
    if constexpr (kMatrixHeads == 8) a[0] = x[0][0], a[1] = 0, a[2] = 0, a[3] = x[1][0];
    else a[0] = x[0][0], a[1] = x[1][0], a[2] = x[0][1], a[3] = x[1][1];
  }
};

// Calls body(std::true_type) if `fast_path` holds, otherwise body(std::false_type): the fast path then is branch-free
// code in which products and exponentials overlap.
template <class Body>
MH_DEVICE void dispatch_bool(bool fast_path, const Body& body) {
  if (fast_path) body(std::true_type{});
  else body(std::false_type{});
}

// Mixes, in place, the in_heads heads of a tile to out_heads: for the queries query_of(u), u < kWarpProducts, and the
// next query of each if a product mixes two. Converts elements from type X to type To; kScaled: times the scale of
// their row.
template <class X, class To, bool kScaled, int kMatrixHeads, int kWarpProducts, class Tile, class Thread, class QueryOf>
MH_DEVICE void mix_queries(const Thread& thread, const Tile& tile, const QueryOf& query_of, int in_heads, int out_heads,
                           const MixMatrix<X, kMatrixHeads> (&matrices)[kWarpProducts]) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  const int head = thread.lane() % kMatrixHeads, query_in_product = kMatrixHeads == 8 ? thread.lane() / 8 % 2 : 0;
  const uint16_t* const from = tile.memory + (head < in_heads ? head : tile.zero_head) * Tile::kHeadStride +
                               query_in_product * Tile::kStride + thread.lane() / 16 * 8;
  uint16_t* const to = tile.memory + g * Tile::kHeadStride + 2 * t;
  constexpr int kSecondRowOffset =
      kMatrixHeads == 8 ? Tile::kStride : 8 * Tile::kHeadStride;  // offset of a lane's second row
  // Other lanes have read what a lane overwrites: the matrix instructions in between are executed by the whole warp.
  uint32_t x[kWarpProducts][Tile::kKeys / 16][4];
  MH_FOR (u, kWarpProducts)
    MH_FOR (n, Tile::kKeys / 16) thread.load_matrices_transposed(x[u][n], from + query_of(u) * Tile::kStride + 16 * n);
  MH_FOR (u, kWarpProducts) {
    uint32_t left[4];
    matrices[u].to_fragment_a(left);
    MH_FOR (n, Tile::kKeys / 16) {
      Accumulator mixed[2];
      MH_FOR (c, 2) {
        const uint32_t right[2] = {x[u][n][2 * c], x[u][n][2 * c + 1]};
        thread.multiply(mixed[c].x, left, right, X{});
      }
      MH_FOR (c, 2)
        MH_FOR (r, 2) {
          const float factor = kScaled ? matrices[u].scale[r] : 1;
          thread.store_if(g + (kMatrixHeads == 16 ? 8 * r : 0) < out_heads,
                          to + query_of(u) * Tile::kStride + r * kSecondRowOffset + 16 * n + 8 * c,
                          thread.pack(mixed[c].x[2 * r] * factor, mixed[c].x[2 * r + 1] * factor, To{}));
        }
    }
  }
}

// Calls visit(strip, sums) with sums (16, kKeys) = strip `strip` of rows (kStrips * 16, kSize) · keys (kKeys, kSize)ᵀ,
// both in shared memory. The fragments of the keys are loaded once for all strips, and the next strip is multiplied
// before a strip is visited.
template <int kSize, int kStrips, int kKeys, class Thread, class T, class Visit>
MH_DEVICE void multiply_strips(const Thread& thread, const T* rows, const T* keys, const Visit& visit) {
  constexpr int kStride = kSize + kPad;
  if constexpr (kStrips == 1) {
    Accumulator sums[kKeys / 8];
    multiply_transposed<kSize, kStride, kSize / 16>(thread, sums, rows, keys);
    visit(0, sums);
  } else {
    FragmentB<T> right[kSize / 16][kKeys / 8];
    MH_FOR (c, kSize / 16)
      MH_FOR (n, kKeys / 16) {
        FragmentB<T> pair[2];
        load_transposed(thread, pair, keys + n * 16 * kStride + c * 16, kStride);
        right[c][2 * n] = pair[0], right[c][2 * n + 1] = pair[1];
      }
    Accumulator sums[2][kKeys / 8];
    MH_FOR (strip, kStrips + 1) {
      if (strip < kStrips) {
        Accumulator(&next_sums)[kKeys / 8] = sums[strip % 2];
        MH_FOR (n, kKeys / 8) next_sums[n] = Accumulator{};
        MH_FOR (c, kSize / 16) {
          FragmentA<T> left;
          load(thread, left, rows + strip * 16 * kStride + c * 16, kStride);
          MH_FOR (n, kKeys / 8) multiply(thread, next_sums[n], left, right[c][n]);
        }
      }
      if (strip > 0) visit(strip - 1, sums[(strip + 1) % 2]);
    }
  }
}

struct NoDropout {
  template <int kColumns>
  MH_DEVICE void operator()(int, int, Accumulator (&)[kColumns]) const {}
};

// Computes sums (strips, 16, kSize) += a head of a tile · rows (kKeys, kSize). If kDropout, dropout(strip, column,
// values) applies dropout to columns `column` to `column` + 15.
template <int kSize, class T, bool kDropout, class Tile, class Thread, class DropoutFn>
MH_DEVICE void accumulate(const Thread& thread, Accumulator (&sums)[Tile::kStrips][kSize / 8], const Tile& tile,
                          int head, const T* rows, const DropoutFn& dropout) {
  constexpr int kStride = kSize + kPad;
  MH_FOR (c, Tile::kKeys / 16) {
    FragmentB<T> right[kSize / 8];
    MH_FOR (n, kSize / 16) {
      FragmentB<T> pair[2];
      load(thread, pair, rows + c * 16 * kStride + n * 16, kStride);
      right[2 * n] = pair[0], right[2 * n + 1] = pair[1];
    }
    MH_FOR (strip, Tile::kStrips) {
      FragmentA<T> left;
      load(thread, left, tile.template at<T>(head, strip, 16 * c), Tile::kStride);
      if constexpr (kDropout) {
        Accumulator values[2];
        widen(thread, values, left);
        dropout(strip, 16 * c, values);
        round_to(thread, left, values[0], values[1]);
      }
      MH_FOR (n, kSize / 8) multiply(thread, sums[strip][n], left, right[n]);
    }
  }
}

// Loads kRows positions of every head of one batch entry into shared memory, (heads, kRows, kStride). Each warp copies
// its own heads.
template <class Z, class T, int kRows>
struct HeadRows {
  static constexpr int kSize = Z::kSize, kStride = Z::kStride, kVector = 16 / static_cast<int>(sizeof(T)),
                       kVectors = kSize / kVector;
  static constexpr bool kWholeRows = 32 % kVectors == 0;  // lanes cover whole rows
  const T* data[Z::kWarpHeads];                           // addresses of the warp's heads
  int64_t row_stride;
  int heads, size;
  bool aligned;
  template <class Thread>
  MH_DEVICE HeadRows(const Thread& thread, const AttentionParams& a, const Rows<const T>& rows, int64_t b,
                     const int64_t* head_of, int num_heads, int row_size)
      : row_stride(rows.row_stride), heads(num_heads), size(row_size), aligned(a.aligned) {
    MH_FOR (o, Z::kWarpHeads) {
      const int head = thread.warp() * Z::kWarpHeads + o;
      data[o] = head < heads ? row_of(rows, b, head_of != nullptr ? head_of[head] : head, 0) : nullptr;
    }
  }
  // Loads rows from `first` on; zeros from `end` on.
  template <class Thread>
  MH_DEVICE void load(const Thread& thread, T* to, int first, int end) const {
    MH_FOR (o, Z::kWarpHeads) {
      const int head = thread.warp() * Z::kWarpHeads + o;
      if (head >= heads) break;
      T* const head_rows = to + head * kRows * kStride;
      if (kWholeRows && aligned && first + kRows <= end) {
        constexpr int kStep = 32 / kVectors < kRows ? 32 / kVectors : kRows;
        const int column = thread.lane() % kVectors * kVector, row = thread.lane() / kVectors;
        const int bytes = column < size ? 16 : 0;
        const T* from = data[o] + to_row(first + row, row_stride) + column;
        T* const destination = head_rows + row * kStride + column;
        if (row >= kRows) continue;
        MH_FOR (i, kRows / kStep) {
          thread.copy_16(destination + i * kStep * kStride, from, bytes);
          from += to_row(kStep, row_stride);
        }
      } else {
        load_rows<kSize>(thread, warp_of(thread), head_rows, data[o], row_stride, first, kRows, end, size, aligned,
                         [](int r) { return r * kStride; });
      }
    }
  }
};

// Shared memory of a block in bytes: resident rows, stages of streamed rows, and tiles of probabilities or gradients.
struct RowMixPlan {
  int num_stages = 0, shared_bytes = 0;  // num_stages 0: does not fit
  constexpr RowMixPlan(int resident_bytes, int stage_bytes, int tile_bytes, int limit) {
    const int fixed = resident_bytes + tile_bytes, free = limit - fixed;
    num_stages = free < stage_bytes ? 0 : free / stage_bytes < kMaxStages ? free / stage_bytes : kMaxStages;
    shared_bytes = fixed + num_stages * stage_bytes;
  }
  constexpr RowMixPlan() = default;
};

}  // namespace mh::kernels
