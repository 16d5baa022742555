// Computes the sizes of the scratch memory of attention without head mixing.
#include "cpu/attention_sizes.h"

namespace mh::kernels {

namespace {

using Fp32 = Fp32Products<Tile4x1, float>;  // scratch sizes are the same for all register tiles and types

// Return the size of the scratch memory, in floats, without the packed operands of Fp32Products or Bf16Products.
int64_t forward_floats(const AttentionParams& params) {
  const int64_t span = forward_span(params);
  return kBlockQueries * row_stride_of(span) + kBlockQueries * params.key_size +
         distances_scratch_floats(params, span) + dropout_mask_scratch_floats(params, span);
}
int64_t backward_floats(const AttentionParams& params, int64_t padded_keys) {
  const int64_t span = backward_span(params), row_stride = row_stride_of(span);
  return (2 * padded_keys + params.queries) * params.key_size + 2 * kBlockQueries * row_stride +
         2 * kBlockQueries * params.key_size + row_stride + cap_slopes_scratch_floats(params, span) +
         pad_to_lanes(params.queries) + distances_scratch_floats(params, span) +
         dropout_mask_scratch_floats(params, span);
}

}  // namespace

int64_t attention_forward_scratch_floats(const AttentionParams& params) {
  return (uses_bf16_gemm(params) ? Bf16Products::scratch_floats(params, false) : Fp32::scratch_floats(params, false)) +
         forward_floats(params);
}
int64_t attention_backward_scratch_floats(const AttentionParams& params) {
  return uses_bf16_gemm(params)
             ? Bf16Products::scratch_floats(params, true) +
                   backward_floats(params, Bf16Products::padded_num_keys(params))
             : Fp32::scratch_floats(params, true) + backward_floats(params, Fp32::padded_num_keys(params));
}

}  // namespace mh::kernels
