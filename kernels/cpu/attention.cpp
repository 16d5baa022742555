// Computes attention without head mixing, in tiles or by the decode kernel, and its gradient, in tiles. Instantiates
// AttentionLoops for one instruction set, for fp32 and bf16 tensors.
#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/attention_sizes.h"
#include "cpu/dropout_mask.h"
#include "cpu/relative.h"
#include "cpu/sigsoftmax.h"

namespace mh::kernels {

namespace {

// Computes `to` (rows, size) = `factor` * `from` (rows, size), rounded to T.
template <class T>
MH_INLINE void store_scaled(const float* from, int64_t rows, int64_t size, float factor, Matrix<T> to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v;
      load(from + r * size + i, v);
      v = v * factor;
      store(v, to.data + r * to.row_stride + i);
    }
}

// Function object that returns, for an index j, the address of row `first + j` of a matrix.
template <class T>
struct RowAddress {
  Matrix<const T> rows;
  int64_t first;
  MH_INLINE const T* operator()(int64_t j) const { return rows.data + (first + j) * rows.row_stride; }
};

// Computes `to` = `from` + scale * bias, where `to` and `from` (rows, size) are scaled queries, and `bias` (size) is
// not scaled. Zeroes the rows of `to` from `rows` to the next multiple of 16.
MH_INLINE void add_bias(const float* bias, int64_t rows, int64_t size, float scale, const float* from, float* to) {
  for (int64_t r = 0; r < pad_to_lanes(rows); ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v{}, b;
      if (r < rows) {
        load(from + r * size + i, v);
        load(bias + i, b);
        v = v + b * scale;
      }
      store(v, to + r * size + i);
    }
}

// Relative positions of one head (RelativeParams), and their scratch for a block of queries.
struct HeadRelativePositions {
  const float *u, *v, *r, *r_transposed;  // of head params.head: u and v (size), r (distances, size), rᵀ
  int64_t size, num_distances;            // elements of a row of r; number of rows of r
  int64_t product_stride;                 // row stride of distance_products
  // (kBlockQueries, product_stride): products of q_v with consecutive rows of r. The backward pass replaces the
  // products by their gradients.
  float* distance_products;
  float* q_v;  // (kBlockQueries, size): scale * (q + v)
  MH_INLINE HeadRelativePositions(const AttentionParams& params, int64_t span, float* scratch)
      : product_stride(distance_row_stride(span, kBlockQueries)),
        distance_products(scratch),
        q_v(scratch + kBlockQueries * product_stride) {
    if (!params.has_relative_positions()) return;
    const RelativeParams& relative = params.relative;
    size = params.key_size, num_distances = relative.num_distances;
    u = relative.u + params.head * size, v = relative.v + params.head * size;
    r = static_cast<const float*>(relative.r) + params.head * num_distances * size,
    r_transposed = relative.r_transposed + params.head * num_distances * size;
  }
};

// Returns the keys of key range number `range_index` that queries of `block` see, and the rows of r that belong to the
// distances of these keys.
MH_INLINE DistanceRange distance_range(const AttentionParams& params, const QueryBlock& block, int64_t range_index) {
  return distance_range(params.relative.key_ranges[range_index], params.queries, block.first, block.m, block.key_begin,
                        std::min(block.key_end, params.visible_end(block.first + block.m - 1)));
}

// Replaces the scaled queries x (block, size) by scale * (q + u), and writes scale * (q + v) to relative.q_v.
MH_INLINE void add_relative_biases(const AttentionParams& params, const QueryBlock& block,
                                   const HeadRelativePositions& relative, float* x) {
  add_bias(relative.v, block.m, relative.size, params.scale, x, relative.q_v);
  add_bias(relative.u, block.m, relative.size, params.scale, x, x);
}

// Adds the position term scale * (q + v) · r[distance] to the logits s (block, row_stride).
template <class RegisterTile>
MH_INLINE void add_position_term(const AttentionParams& params, const QueryBlock& block,
                                 const HeadRelativePositions& relative, int64_t row_stride, float* s) {
  for (int64_t range_index = 0; range_index < params.relative.num_key_ranges; ++range_index) {
    const DistanceRange range = distance_range(params, block, range_index);
    if (range.num_keys <= 0) continue;
    matmul<RegisterTile, false>(block.padded_m, pad_to_lanes(range.num_rows), relative.size,
                                {relative.q_v, relative.size, 1},
                                {relative.r_transposed + range.first_row, relative.num_distances},
                                {relative.distance_products, relative.product_stride});
    for (int64_t i = 0; i < block.m; ++i)
      add_to(relative.distance_products + i * relative.product_stride + block.m - 1 - i, range.num_keys,
             s + i * row_stride + range.first_key - block.key_begin);
  }
}

// Computes the gradients of the position term scale * (q + v) · r[distance] from the gradient ds (block, row_stride) of
// the logits: adds to dr (distances, size), and overwrites dqueries (block, size), the gradient with respect to
// relative.q_v.
template <class RegisterTile>
MH_INLINE void position_term_backward(const AttentionParams& params, const QueryBlock& block,
                                      const HeadRelativePositions& relative, int64_t row_stride, const float* ds,
                                      float* dr, float* dqueries) {
  std::fill_n(dqueries, block.padded_m * relative.size, 0.0F);
  for (int64_t range_index = 0; range_index < params.relative.num_key_ranges; ++range_index) {
    const DistanceRange range = distance_range(params, block, range_index);
    if (range.num_keys <= 0) continue;
    std::fill_n(relative.distance_products, block.padded_m * relative.product_stride, 0.0F);
    for (int64_t i = 0; i < block.m; ++i)
      std::memcpy(relative.distance_products + i * relative.product_stride + block.m - 1 - i,
                  ds + i * row_stride + range.first_key - block.key_begin,
                  static_cast<size_t>(range.num_keys) * sizeof(float));
    matmul<RegisterTile, true>(
        block.padded_m, relative.size, range.num_rows, {relative.distance_products, relative.product_stride, 1},
        {relative.r + range.first_row * relative.size, relative.size}, {dqueries, relative.size});
    matmul<RegisterTile, true>(round_up(range.num_rows, 8), relative.size, block.padded_m,
                               {relative.distance_products, 1, relative.product_stride}, {relative.q_v, relative.size},
                               {dr + range.first_row * relative.size, relative.size});
  }
}

// Computes the dropout factors, 1 / (1 - p) or 0, of query i of a block and `num_keys` keys from block.key_begin on.
MH_INLINE void dropout_mask_of_query(const AttentionParams& params, const QueryBlock& block, int64_t i,
                                     int64_t num_keys, float* dropout_mask) {
  const auto offset = static_cast<uint64_t>((block.first + i) * params.dropout_row_stride + block.key_begin);
  dropout_mask_range(params.dropout, params.dropout_offset + offset, num_keys, dropout_mask);
}

// Multiplies x (count) elementwise by `dropout_mask` (count); dropped elements become 0 even if they are not finite.
MH_INLINE void apply_dropout_to_row(const float* dropout_mask, int64_t count, float* x) {
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    Floats v, factors;
    load(x + j, v);
    load(dropout_mask + j, factors);
    store(apply_dropout_mask(factors, v), x + j);
  }
  for (; j < count; ++j) x[j] = apply_dropout_mask(dropout_mask[j], x[j]);
}

// Applies the soft cap and adds the position bias to the logits x (count) of query `query`, whose first logit belongs
// to key key_begin and which sees the keys [begin, end). cap_slopes (count): receives the derivative of the soft cap;
// null: not computed. `count` is rounded up to a multiple of 16.
MH_INLINE void add_logit_terms(const AttentionParams& params, int64_t query, int64_t key_begin, const KeySpan& visible,
                               int64_t count, float* x, float* cap_slopes) {
  if (params.soft_cap > 0) cap_logits(params.soft_cap, count, x, cap_slopes);
  if (!params.has_position_bias()) return;
  const float* bias = position_bias_row(params, params.head);
  for_each_bias_range(params, query, visible.begin, visible.end, [&](int64_t key, int64_t num_keys, int64_t column) {
    add_to(bias + column, num_keys, x + key - key_begin);
  });
}

// Returns whether decode_forward() serves a call with these parameters.
bool is_decode(const AttentionParams& params) {
  return params.queries <= kMaxDecodeQueries && !params.has_backward && !params.has_dropout() &&
         !params.has_relative_positions() && params.normaliser == Normaliser::softmax;
}

// Computes the forward pass of at most kMaxDecodeQueries queries. Keys and values are read in place, not packed.
template <class T>
MH_INLINE void decode_forward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  const Matrix<const T> q = tensors.q, k = tensors.k, v = tensors.v;
  const int64_t d = params.key_size;
  float* s = scratch;                               // logits of one query (keys)
  float* scaled_q = s + pad_to_lanes(params.keys);  // scaled query (d)
  for (int64_t i = 0; i < params.queries; ++i) {
    const KeySpan visible{params.visible_begin(i), params.visible_end(i)};
    const int64_t first = visible.begin, num_keys = visible.end - first;
    const auto add_terms = [&](float* x) { add_logit_terms(params, i, first, visible, num_keys, x, nullptr); };
    pack_fp32(Matrix<const T>{q.data + i * q.row_stride, q.row_stride}, 1, 1, d, params.scale, scaled_q);
    tensors.lse[i] =
        attend_query(scaled_q, d, KeysAndValues{RowAddress<T>{k, first}, RowAddress<T>{v, first}, num_keys},
                     LogitTerms{add_terms, sink_of(params, params.head)}, params.head_scale(params.head), s,
                     tensors.out.data + i * tensors.out.row_stride);
  }
}

// The keys [first, end) that query i of a block sees, counted from key block.key_begin; none if `end <= first`.
struct VisibleRange {
  int64_t first, end;
  MH_INLINE VisibleRange(const AttentionParams& params, const QueryBlock& block, int64_t i)
      : first(std::max<int64_t>(0, params.visible_begin(block.first + i) - block.key_begin)),
        end(std::min(params.visible_end(block.first + i), block.key_end) - block.key_begin) {}
  MH_INLINE bool is_empty() const { return end <= first; }
  // Returns the range, counted from key 0.
  MH_INLINE KeySpan keys(const QueryBlock& block) const { return {block.key_begin + first, block.key_begin + end}; }
};

// Sets the first `count` elements of x, which belong to masked keys, to `value`.
MH_INLINE void fill_masked(int64_t count, float value, float* x) {
  for (int64_t i = 0; i < count; ++i) x[i] = value;
}

// Computes the logits s of a block of queries, with the term of relative positions added. The logits of query i begin
// at s + i * row_stride. With relative positions, also adds u to the packed queries, which accumulate_dk() reads later.
template <class RegisterTile, class Products>
MH_INLINE void compute_logits(const AttentionParams& params, const QueryBlock& block,
                              const HeadRelativePositions& relative, Products& products, int64_t row_stride, float* s) {
  if (params.has_relative_positions()) add_relative_biases(params, block, relative, products.packed_queries());
  products.compute_logits(block, s);
  if (params.has_relative_positions()) add_position_term<RegisterTile>(params, block, relative, row_stride, s);
}

// Applies one step of the online softmax (Milakov and Gimelshein 2018) to a query: replaces its logits x (width) by
// exp(x - running_max), and the logits of masked keys by 0; updates running_max and running_sum, the maximum logit and
// the sum of exponentials over the keys so far; and rescales `values` (d), the sum of the values weighted by
// exponentials, to the new maximum.
MH_INLINE void online_softmax(const VisibleRange& visible_range, int64_t width, int64_t d, float* x, float& running_max,
                              float& running_sum, float* values) {
  if (visible_range.is_empty()) return fill_masked(width, 0, x);
  fill_masked(visible_range.first, -INFINITY, x);
  const float previous_max = running_max;
  running_max = std::max(running_max, max_visible_logit(x, visible_range.end));
  if (running_max == -INFINITY && all_masked(x, visible_range.end)) return fill_masked(width, 0, x);
  if (running_sum != 0 && running_max > previous_max) {
    const float factor = std::exp(previous_max - running_max);
    running_sum *= factor;
    scale_rows(factor, 1, d, values, d);
  }
  running_sum += exponentiate_row(x, visible_range.end, width, running_max);
  fill_masked(visible_range.first, 0, x);
}

// Computes the forward pass of one head, in blocks of kBlockQueries queries. Products: Fp32Products or Bf16Products.
template <class RegisterTile, class Products, class T>
MH_INLINE void forward_tiled(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  const Matrix<const T> q = tensors.q, k = tensors.k, v = tensors.v;
  const Matrix<T> out = tensors.out;
  float* const lse = tensors.lse;
  const int64_t d = params.key_size, span = forward_span(params), row_stride = row_stride_of(span);
  ScratchAllocator allocator{scratch};
  Products products(params, false, row_stride, k, v, allocator);
  float* s = allocator.allocate(kBlockQueries * row_stride);
  float* out_sums = allocator.allocate(kBlockQueries * d);
  const HeadRelativePositions relative(params, span, allocator.allocate(distances_scratch_floats(params, span)));
  float* dropout_mask = allocator.next + kDropoutGroupSize;
  for (int64_t first = 0; first < params.queries; first += kBlockQueries) {
    float running_max[kBlockQueries], running_sum[kBlockQueries];
    std::fill_n(running_max, kBlockQueries, -INFINITY), std::fill_n(running_sum, kBlockQueries, 0.0F),
        std::fill_n(out_sums, kBlockQueries * d, 0.0F);
    for (int64_t key = 0; key < params.keys; key += span) {
      const QueryBlock block = Products::query_block_at(params, first, {key, key + span});
      if (block.num_keys() <= 0) continue;
      products.pack_queries(block, q);
      compute_logits<RegisterTile>(params, block, relative, products, row_stride, s);
      for (int64_t i = 0; i < block.m; ++i) {
        float* x = s + i * row_stride;
        const VisibleRange visible_range(params, block, i);
        add_logit_terms(params, first + i, block.key_begin, visible_range.keys(block), block.num_keys(), x, nullptr);
        if (params.normaliser == Normaliser::sigsoftmax) sigsoftmax_logits(x, block.num_keys(), nullptr);
        online_softmax(visible_range, block.num_keys(), d, x, running_max[i], running_sum[i], out_sums + i * d);
        if (!params.has_dropout() || visible_range.is_empty()) continue;
        dropout_mask_of_query(params, block, i, visible_range.end, dropout_mask);
        apply_dropout_to_row(dropout_mask, visible_range.end, x);
      }
      products.accumulate_out(block, s, out_sums);
    }
    for (int64_t i = 0; i < std::min(kBlockQueries, params.queries - first); ++i) {
      const RowSum row_sum = add_sink(sink_of(params, params.head), running_max[i], running_sum[i]);
      lse[first + i] = row_sum.lse;
      store_scaled(out_sums + i * d, 1, d, row_sum.sum == 0 ? 0 : params.head_scale(params.head) / row_sum.sum,
                   Matrix<T>{out.data + (first + i) * out.row_stride, out.row_stride});
    }
  }
}

// Computes the backward pass of one head. Products: Fp32Products or Bf16Products.
template <class RegisterTile, class Products, class T>
MH_INLINE void backward_tiled(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  const Matrix<const T> q = tensors.q, k = tensors.k, v = tensors.v, dout = tensors.dout;
  const Matrix<T> out = tensors.out;
  const float* const lse = tensors.lse;
  const int64_t d = params.key_size, padded_keys = Products::padded_num_keys(params), span = backward_span(params),
                row_stride = row_stride_of(span);
  ScratchAllocator allocator{scratch};
  Products products(params, true, row_stride, k, v, allocator);
  float* dk = allocator.allocate(padded_keys * d);
  float* dv = allocator.allocate(padded_keys * d);
  float* dq = allocator.allocate(params.queries * d);
  float* p = allocator.allocate(kBlockQueries * row_stride);
  float* ds = allocator.allocate(kBlockQueries * row_stride);
  float* dq_sums = allocator.allocate(kBlockQueries * d);
  float* dq_v = allocator.allocate(kBlockQueries * d);
  float* slopes = allocator.allocate(row_stride);  // derivative of sigsoftmax_logits() for one query
  float* cap_slopes = allocator.allocate(cap_slopes_scratch_floats(params, span));  // derivative of the soft cap
  // (queries): delta = Σ P dP over all keys, where dP includes dropout and the scale of the head.
  float* deltas = allocator.allocate(pad_to_lanes(params.queries));
  const HeadRelativePositions relative(params, span, allocator.allocate(distances_scratch_floats(params, span)));
  float* dropout_mask = allocator.next + kDropoutGroupSize;
  if (params.has_relative_positions()) {
    for (float* gradient : {tensors.du, tensors.dv_bias}) std::fill_n(gradient, d, 0.0F);
    std::fill_n(tensors.dr, relative.num_distances * d, 0.0F);
  }
  if (tensors.dposition_bias != nullptr) std::fill_n(tensors.dposition_bias, params.position_bias.num_distances, 0.0F);
  std::fill_n(dk, (2 * padded_keys + params.queries) * d, 0.0F);
  for (int64_t i = 0; i < params.queries; ++i) {
    Floats sum{};  // rowsum(dO ∘ O), which equals delta
    for (int64_t j = 0; j < d; j += lanes) {
      Floats o, g;
      load(out.data + i * out.row_stride + j, o);
      load(dout.data + i * dout.row_stride + j, g);
      sum += o * g;
    }
    deltas[i] = sum_of(sum);
  }
  const float head_scale = params.head_scale(params.head);
  double head_dscale = 0;  // gradient of the head's scale: Σ P dP, where dP does not include the scale
  // The loop over spans of keys is the outer loop, so that the keys and values of a span, and their gradients, stay in
  // the cache for all blocks of queries.
  for (int64_t key = 0; key < params.keys; key += span)
    for (int64_t first = 0; first < params.queries; first += kBlockQueries) {
      const QueryBlock block = Products::query_block_at(params, first, {key, key + span});
      const int64_t width = block.num_keys();
      if (width <= 0) continue;
      products.pack_queries(block, q);
      products.pack_dout(block, dout);
      compute_logits<RegisterTile>(params, block, relative, products, row_stride, p);
      products.compute_dp(block, ds);
      for (int64_t i = 0; i < block.padded_m; ++i) {
        float *p_row = p + i * row_stride, *ds_row = ds + i * row_stride;
        const VisibleRange visible_range(params, block, std::min(i, block.m - 1));
        // Padding rows, queries that see no key of the span, and fully masked rows add nothing to the gradients.
        if (i >= block.m || visible_range.is_empty() || lse[first + i] == INFINITY) {
          std::fill_n(p_row, width, 0.0F), std::fill_n(ds_row, width, 0.0F);
          continue;
        }
        add_logit_terms(params, first + i, block.key_begin, visible_range.keys(block), width, p_row, cap_slopes);
        const bool is_sigsoftmax = params.normaliser == Normaliser::sigsoftmax;
        if (is_sigsoftmax) sigsoftmax_logits(p_row, width, slopes);
        exponentiate_row(p_row, visible_range.end, width, lse[first + i]);
        fill_masked(visible_range.first, 0, p_row);
        if (params.has_dropout())
          dropout_mask_of_query(params, block, i, visible_range.end, dropout_mask),
              apply_dropout_to_row(dropout_mask, visible_range.end, ds_row);
        const float delta = deltas[first + i];
        Floats dscale_lanes{};
        for (int64_t j = 0; j < width; j += lanes) {
          Floats a, g;
          load(p_row + j, a);
          load(ds_row + j, g);
          if (tensors.dscale != nullptr) dscale_lanes += a * g;
          g = a * (g * head_scale - delta);
          if (is_sigsoftmax) {
            load(slopes + j, a);
            g = g * a;
          }
          store(g, ds_row + j);
        }
        head_dscale += sum_of(dscale_lanes);
        if (tensors.dposition_bias != nullptr)
          for_each_bias_range(params, first + i, visible_range.keys(block).begin, visible_range.keys(block).end,
                              [&](int64_t bias_key, int64_t num_keys, int64_t column) {
                                add_to(ds_row + bias_key - block.key_begin, num_keys, tensors.dposition_bias + column);
                              });
        if (params.soft_cap > 0) multiply_by(cap_slopes, width, ds_row);
        if (params.has_dropout()) apply_dropout_to_row(dropout_mask, visible_range.end, p_row);
      }
      std::fill_n(dq_sums, kBlockQueries * d, 0.0F);
      products.accumulate_dq(block, ds, dq_sums);
      if (params.has_relative_positions()) {
        position_term_backward<RegisterTile>(params, block, relative, row_stride, ds, tensors.dr, dq_v);
        add_row_sum(dq_sums, block.m, d, params.scale, tensors.du);
        add_row_sum(dq_v, block.m, d, params.scale, tensors.dv_bias);
        add_to(dq_v, block.m * d, dq_sums);
      }
      add_to(dq_sums, block.m * d, dq + first * d);
      products.accumulate_dk(block, ds, dk);
      products.accumulate_dv(block, p, dv);
    }
  store_scaled(dq, params.queries, d, params.scale, tensors.dq);
  store_scaled(dk, params.keys, d, Products::kQueriesScaled ? 1 : params.scale, tensors.dk);
  store_scaled(dv, params.keys, d, head_scale, tensors.dv);
  if (tensors.dscale != nullptr) *tensors.dscale = static_cast<float>(head_dscale);
  if (tensors.dsink == nullptr) return;
  double dsink = 0;  // the derivative of a probability P with respect to the sink is -P times the sink's probability
  for (int64_t i = 0; i < params.queries; ++i) dsink -= std::exp(*sink_of(params, params.head) - lse[i]) * deltas[i];
  *tensors.dsink = static_cast<float>(dsink);
}

}  // namespace

template <SimdLevel L, class T>
void AttentionLoops<L, T>::forward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  if (is_decode(params)) return decode_forward(params, tensors, scratch);
  if constexpr (std::is_same_v<T, uint16_t> && L == SimdLevel::avx512)
    if (uses_bf16_gemm(params)) return forward_tiled<BestTile, Bf16Products>(params, tensors, scratch);
  forward_tiled<BestTile, Fp32Products<BestTile, T>>(params, tensors, scratch);
}

template <SimdLevel L, class T>
void AttentionLoops<L, T>::backward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  if constexpr (std::is_same_v<T, uint16_t> && L == SimdLevel::avx512)
    if (uses_bf16_gemm(params)) return backward_tiled<BestTile, Bf16Products>(params, tensors, scratch);
  backward_tiled<BestTile, Fp32Products<BestTile, T>>(params, tensors, scratch);
}

template struct AttentionLoops<kSimdLevel, float>;
template struct AttentionLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
