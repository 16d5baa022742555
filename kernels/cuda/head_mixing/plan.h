// The tiling of head-mixing kernels, computed on the host from the available shared memory. A block takes
//
//   num_row_tiles * (num_resident_tiles * tile + exchanged_fragments * fragment + products) + num_stages *
//   tiles_per_stage * tile + weights
//
// bytes of shared memory. A tile is 16 rows of kSize + 8 elements: 2304 bytes for heads of 64 in bf16. A fragment is
// 512 bytes for 16-bit types and 1024 for fp32; for 16-bit types, exchanged_fragments counts an odd number of heads as
// the next even number. Products are 2560 bytes for each warp of a row tile with relative positions, and otherwise 0.
// Weights are 4 * weight_rows * warps_per_row_tile * max_heads_per_warp bytes, rounded up to a multiple of 16, and 0 in
// fp32.
#pragma once

#include "ceil_div.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// The order of the blocks of a grid, each of which computes one tile of queries, of keys or of rows of r of one batch
// row. Batch rows are computed in groups, whose keys and values fit in the L2 cache if the batch rows are short enough
// (block_order()). Within a group the tiles with the most work are first, so that no long tile begins late.
struct BlockOrder {
  int num_tiles = 0, batch = 0, group_batch_rows = 1;  // tiles of a batch row; batch rows; batch rows of a group
  struct Position {
    int tile, batch_row;
  };
  constexpr int num_blocks() const { return num_tiles * batch; }
  // Returns the indices of the tile and of the batch row of a block. is_reversed: the last tile is first, since it has
  // the most keys under a causal mask.
  template <class Thread>
  MH_DEVICE Position position(const Thread& thread, bool is_reversed) const {
    const int group = thread.block_x() / (group_batch_rows * num_tiles), first = group * group_batch_rows,
              index_in_group = thread.block_x() - first * num_tiles;
    const int rows = batch - first < group_batch_rows ? batch - first : group_batch_rows, tile = index_in_group / rows;
    return {is_reversed ? num_tiles - 1 - tile : tile, first + index_in_group % rows};
  }
};

// The tiling of a kernel. A tile is 16 rows of one tensor and head. A row tile is the set of 16 resident rows, of all
// heads, that a group of warps shares.
struct HeadMixingPlan {
  int warps_per_row_tile = 0, num_row_tiles = 0;  // warps that share a row tile; row tiles of a block
  int num_head_blocks = 0;                        // number of blocks among which the heads of a row tile are divided
  int heads_per_stage = 0;  // heads of a stage; if fewer than all, the heads are streamed in groups
  int num_resident_tiles =
      0;  // resident tiles of a row tile; 0: resident rows are loaded again with each streamed tile
  // Whether a stage has all streamed tensors; otherwise it has the tensors of one product.
  bool stage_has_all_tensors = false;
  int tiles_per_stage = 0, num_stages = 0;  // tiles of a stage; number of stages, 0 if the kernel does not fit
  int shared_bytes = 0;                     // dynamic shared memory of a block
  int weight_bytes = 0;                     // bytes of the mixing matrices, at the end of the shared memory
  int num_concurrent_stores = 0;  // warps of a row tile whose results fit in the shared memory at the same time
  constexpr int threads() const { return 32 * warps_per_row_tile * num_row_tiles; }
};

// The shared memory requirements of a kernel. A tile is 16 rows of one tensor and head.
struct HeadMixingRequirements {
  int heads, max_heads_per_warp;  // heads divided among the warps of a row tile; maximum number of heads of a warp
  int num_resident_tiles;         // resident tiles of a row tile
  int max_stage_heads;            // heads of the operand that has the most heads
  int all_tensors_tiles = 0;      // tiles of a stage with all streamed tensors (stage_has_all_tensors); 0: unused
  int exchanged_fragments = 0;    // fragments of a row tile (FragmentExchange)
  int weight_rows = 0;            // rows of mixing matrices (SharedMatrix)
  // Numbers of streamed and resident tensors of a head, and whether a row window is streamed with them: the rows of r
  // (relative positions) that belong to the tile or, if rows of r are resident, the rows of k or v
  // (head_mixing/relative.h). It is not the attention window, params.window.
  int streamed_tensors = 1, resident_tensors = 1;
  bool has_window = false;
};

constexpr int kHeadMixingWarps = 8, kMaxStages = 4;  // maximum number of warps of a block; of pipeline stages
// Bytes of the products (16, 32) of a warp's 16 rows with 32 rows of the row window; each row of products has 8 floats
// of padding.
constexpr int kWindowProductBytes = 16 * (32 + 8) * static_cast<int>(sizeof(float));

// Returns the maximum number of heads of a warp, limited by the registers. columns: fp32 accumulator columns of a head.
template <class T>
constexpr int max_warp_heads(int columns) {
  const int heads = (sizeof(T) == 4 ? 128 : 256) / columns;
  return heads < 1 ? 1 : heads > 4 ? 4 : heads;
}

// Returns the number of rows of a SharedMatrix: `heads` rounded up to an even number, plus one row of scales.
constexpr int num_weight_rows(int heads) { return round_up(heads, 2) + 1; }

// Returns the plan for a kernel with these requirements and at most `max_shared_bytes` bytes of shared memory;
// num_stages is 0 if no plan fits. stride: row stride of tiles in shared memory, in elements.
template <class T>
constexpr HeadMixingPlan head_mixing_plan(const HeadMixingRequirements& requirements, int stride,
                                          int max_shared_bytes) {
  HeadMixingPlan plan;
  const int warps = ceil_div(requirements.heads, requirements.max_heads_per_warp);
  const int tile_bytes = 16 * stride * static_cast<int>(sizeof(T)), fragment_bytes = 32 * (sizeof(T) == 4 ? 32 : 16);
  plan.warps_per_row_tile = warps < kHeadMixingWarps ? warps : kHeadMixingWarps;
  plan.num_head_blocks = ceil_div(warps, plan.warps_per_row_tile);
  plan.weight_bytes =
      sizeof(T) == 2
          ? round_up(requirements.weight_rows * plan.warps_per_row_tile * requirements.max_heads_per_warp * 4, 16)
          : 0;
  // Returns the number of streamed tiles of a head.
  const auto streamed_tiles = [&](int num_row_tiles) {
    return requirements.streamed_tensors + (requirements.has_window ? 1 + num_row_tiles : 0);
  };
  // Fills in the plan for stages of tiles_per_stage tiles; returns whether at least min_stages stages fit.
  const auto try_stages = [&](int num_row_tiles, int num_resident_tiles, int tiles_per_stage, int min_stages) {
    const int product_bytes = requirements.has_window ? plan.warps_per_row_tile * kWindowProductBytes : 0;
    const int fixed_bytes = num_row_tiles * (num_resident_tiles * tile_bytes +
                                             requirements.exchanged_fragments * fragment_bytes + product_bytes) +
                            plan.weight_bytes,
              free_bytes = max_shared_bytes - fixed_bytes;
    plan.num_row_tiles = num_row_tiles, plan.num_resident_tiles = num_resident_tiles,
    plan.tiles_per_stage = tiles_per_stage;
    plan.num_stages = free_bytes < 0 || tiles_per_stage == 0 ? 0 : free_bytes / (tiles_per_stage * tile_bytes);
    plan.num_stages = plan.num_stages < kMaxStages ? plan.num_stages : kMaxStages;
    plan.shared_bytes = fixed_bytes + plan.num_stages * tiles_per_stage * tile_bytes;
    plan.num_concurrent_stores = plan.shared_bytes / (num_row_tiles * tile_bytes) < plan.warps_per_row_tile
                                     ? plan.shared_bytes / (num_row_tiles * tile_bytes)
                                     : plan.warps_per_row_tile;
    return plan.num_stages >= min_stages;
  };
  // First choice: all heads in a stage, with as many row tiles as the number of warps allows, and with at least two
  // stages if there are several row tiles.
  plan.heads_per_stage = requirements.max_stage_heads, plan.stage_has_all_tensors = requirements.all_tensors_tiles > 0;
  for (int num_row_tiles = kHeadMixingWarps / plan.warps_per_row_tile; num_row_tiles > 0; num_row_tiles /= 2)
    if (try_stages(num_row_tiles, requirements.num_resident_tiles,
                   plan.stage_has_all_tensors ? requirements.all_tensors_tiles
                                              : requirements.max_stage_heads * streamed_tiles(num_row_tiles),
                   num_row_tiles > 1 ? 2 : 1))
      return plan;
  // Second choice: groups of heads. The preferences, strongest first, are a head for every warp, two stages or more,
  // resident rows that are loaded once, and many heads in a group.
  plan.stage_has_all_tensors = false;
  for (const int min_heads :
       {plan.warps_per_row_tile < requirements.max_stage_heads ? plan.warps_per_row_tile : requirements.max_stage_heads,
        1})
    for (const int min_stages : {2, 1})
      for (const int num_resident_tiles : {requirements.num_resident_tiles, 0})
        for (plan.heads_per_stage = requirements.max_stage_heads; plan.heads_per_stage >= min_heads;
             --plan.heads_per_stage)
          if (try_stages(1, num_resident_tiles,
                         plan.heads_per_stage *
                             (streamed_tiles(1) + (num_resident_tiles > 0 ? 0 : requirements.resident_tensors)),
                         min_stages))
            return plan;
  plan.num_stages = 0;
  return plan;
}

}  // namespace mh::kernels
