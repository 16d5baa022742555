// Computes the sizes of tiles, packed operands and scratch memory for attention with head mixing.
#include "cpu/head_mixing/layout.h"

namespace mh::kernels {

int64_t head_mixing_tile_rows(const AttentionParams& params) { return tile_size(params).rows; }

int64_t head_mixing_key_floats(const AttentionParams& params) { return key_floats(params); }
int64_t head_mixing_value_floats(const AttentionParams& params) { return value_floats(params); }

int64_t head_mixing_pack_floats(const AttentionParams& params, bool backward) {
  return is_decode(params) ? 0 : (backward ? 2 : 1) * head_mixing_key_floats(params) + head_mixing_value_floats(params);
}

int64_t head_mixing_forward_scratch_floats(const AttentionParams& params) {
  if (is_decode(params)) return head_mixing_decode_scratch_floats(params);
  const TileLayout layout(params, tile_size(params));
  return layout.tile_floats() + params.heads * layout.rows * layout.dk + params.value_heads * layout.rows * layout.dv +
         layout.max_heads * kChunkKeys + pad_to_lanes(params.heads * params.value_heads) +
         2 * layout.rows * params.heads + pad_to_lanes(params.heads) + dropout_mask_scratch_floats(params, layout) +
         operand_scratch_floats(params, layout);
}
int64_t head_mixing_backward_scratch_floats(const AttentionParams& params) {
  const TileLayout layout(params, tile_size(params));
  return 2 * layout.tile_floats() + 3 * params.heads * layout.rows * layout.dk +
         params.value_heads * layout.rows * layout.dv + params.heads * params.value_heads * lanes +
         layout.rows * params.heads * params.value_heads + 2 * layout.max_heads * kChunkKeys +
         layout.rows * params.heads + pad_to_lanes(params.heads * params.value_heads) + pad_to_lanes(params.heads) +
         dropout_mask_scratch_floats(params, layout) + slopes_scratch_floats(params, layout) +
         operand_scratch_floats(params, layout);
}

bool is_head_mixing_decode(const AttentionParams& params) { return is_decode(params); }
int64_t head_mixing_decode_scratch_floats(const AttentionParams& params) {
  const TileLayout layout = layout_of_decode(params);
  return params.queries * layout.query_stride() + layout.max_heads * kChunkKeys +
         pad_to_lanes(params.heads * params.value_heads) + 2 * params.heads;
}

}  // namespace mh::kernels
