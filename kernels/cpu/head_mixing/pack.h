// Packs keys and values for the matrix products of head mixing on a CPU.
#pragma once

#include <type_traits>

#include "cpu/head_mixing/layout.h"

namespace mh::kernels {

namespace {

// Computes `to` (rows, padded size) = `factor` * `from` (length, size) in fp32, with row r of `from` at
// `from + r * row_stride`; the rows of `to` from `length` on become zero.
template <class T>
void pack_rows_fp32(const T* from, int64_t row_stride, int64_t length, int64_t size, float factor, int64_t rows,
                    float* to) {
  const int64_t padded_size = pad_to_lanes(size);
  for (int64_t r = 0; r < length; ++r)
    for (int64_t i = 0; i < padded_size; i += lanes) {
      Floats v;
      load_partial(from + r * row_stride + i, size - i, v);
      v = v * factor;
      store(v, to + r * padded_size + i);
    }
  std::fill_n(to + length * padded_size, (rows - length) * padded_size, 0.0F);
}

// Transposes `from` (length, size), with row r at `from + r * row_stride`, chunk by chunk into `to` (chunks, size,
// kChunkKeys); the columns from `length` on become zero.
template <class T>
void pack_transposed_fp32(const T* from, int64_t row_stride, int64_t length, int64_t size, float* to) {
  for (int64_t first = 0; first < round_up(length, kChunkKeys); first += lanes) {
    const int64_t count = std::clamp<int64_t>(length - first, 0, lanes);
    float* out = to + first / kChunkKeys * size * kChunkKeys + first % kChunkKeys;
    for (int64_t i = 0; i < size; i += lanes) {
      Floats rows[lanes];
      for (int64_t j = 0; j < lanes; ++j) {
        if (j < count) load_partial(from + (first + j) * row_stride + i, size - i, rows[j]);
        else rows[j] = Floats{};
      }
      transpose(rows);
      for (int64_t j = 0; j < std::min<int64_t>(lanes, size - i); ++j) store(rows[j], out + (i + j) * kChunkKeys);
    }
  }
}

// The addresses of the packed keys and values of all heads. Float is float or const float.
template <class Float>
struct PackedOperands {
  // transposed_k: (h, chunks, key_size, kChunkKeys). keys: (h, keys, dk), in the backward pass only.
  // values: (hv, keys, dv) in the forward pass, transposed (hv, chunks, value_size, kChunkKeys) in the backward pass.
  Float *transposed_k, *keys, *values;
  MH_INLINE PackedOperands(const AttentionParams& params, bool backward, Float* packed_kv)
      : transposed_k(packed_kv),
        keys(packed_kv + (backward ? key_floats(params) : 0)),
        values(keys + key_floats(params)) {}
};

// Packs the keys of query head `head`, or, if `head >= params.heads`, the values of value head `head - params.heads`,
// as right operands of bf16 products (cpu/bf16_operands.h). The operand of a head takes the first half of the floats
// that PackedOperands has for the head.
void pack_bf16(const AttentionParams& params, const TileLayout& layout, bool backward, int64_t head,
               HeadsView<const uint16_t> k, HeadsView<const uint16_t> v, const PackedOperands<float>& packed_operands) {
  const auto head_operand = [&](float* operands, int64_t i, int64_t padded_size) {
    return reinterpret_cast<uint16_t*>(operands + i * layout.padded_keys() * padded_size);
  };
  if (head < params.heads) {
    transpose_rows(k.at(params.k_head(head), 0), k.row_stride, params.keys, layout.padded_keys(), params.key_size,
                   head_operand(packed_operands.transposed_k, head, layout.dk));
    if (backward)
      interleave_rows(k.at(params.k_head(head), 0), k.row_stride, params.keys, layout.padded_keys(), params.key_size,
                      head_operand(packed_operands.keys, head, layout.dk));
    return;
  }
  head -= params.heads;
  uint16_t* to = head_operand(packed_operands.values, head, layout.dv);
  if (backward)
    transpose_rows(v.at(params.v_head(head), 0), v.row_stride, params.keys, layout.padded_keys(), params.value_size,
                   to);
  else
    interleave_rows(v.at(params.v_head(head), 0), v.row_stride, params.keys, layout.padded_keys(), params.value_size,
                    to);
}

}  // namespace

template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::pack(const AttentionParams& params, bool backward, int64_t head, HeadsView<const T> k,
                                 HeadsView<const T> v, float* packed_kv) {
  if (is_decode(params)) return;
  const TileLayout layout(params, {});
  const PackedOperands<float> packed_operands(params, backward, packed_kv);
  if constexpr (std::is_same_v<T, uint16_t>)
    if (uses_bf16_gemm(params)) return pack_bf16(params, layout, backward, head, k, v, packed_operands);
  if (head < params.heads) {
    pack_transposed_fp32(k.at(params.k_head(head), 0), k.row_stride, params.keys, params.key_size,
                         packed_operands.transposed_k + head * layout.num_chunks * params.key_size * kChunkKeys);
    if (backward)
      pack_rows_fp32(k.at(params.k_head(head), 0), k.row_stride, params.keys, params.key_size, 1.0F, params.keys,
                     packed_operands.keys + head * layout.padded_keys() * layout.dk);
    return;
  }
  head -= params.heads;
  if (backward)
    pack_transposed_fp32(v.at(params.v_head(head), 0), v.row_stride, params.keys, params.value_size,
                         packed_operands.values + head * layout.num_chunks * params.value_size * kChunkKeys);
  else
    pack_rows_fp32(v.at(params.v_head(head), 0), v.row_stride, params.keys, params.value_size, 1.0F, params.keys,
                   packed_operands.values + head * layout.padded_keys() * layout.dv);
}

}  // namespace mh::kernels
