// The block layout of head-mixing kernels, computed on the host from the available shared memory.
#pragma once

#include "cuda/fragment.h"

namespace mh::kernels {

// The order of blocks over tiles of queries or keys and batch rows: tiles with the most work first, so that no long
// tile begins late, and as many batch rows in parallel as fit in the L2 cache.
struct BlockOrder {
  int tiles = 0, batch = 0, concurrent_rows = 1;
  struct Position {
    int tile, row;
  };
  constexpr int blocks() const { return tiles * batch; }
  // reversed: the last tile has the most work.
  template <class Thread>
  MH_DEVICE Position position(const Thread& thread, bool reversed) const {
    const int group = thread.block_x() / (concurrent_rows * tiles), first = group * concurrent_rows,
              index_in_group = thread.block_x() - first * tiles;
    const int rows = batch - first < concurrent_rows ? batch - first : concurrent_rows, tile = index_in_group / rows;
    return {reversed ? tiles - 1 - tile : tile, first + index_in_group % rows};
  }
};

struct HeadMixingPlan {
  int warps_per_strip = 0, strips = 0;  // strips of 16 rows
  int head_blocks = 0;                  // number of blocks that divide the heads
  int heads_per_stage = 0;              // if fewer than all heads, a tile is streamed in groups of heads
  int resident_tiles = 0;               // of a strip; 0: loaded again with each tile that they are multiplied with
  bool one_stage = false;               // one stage has all rows that the work on a tile needs
  int stage_tiles = 0, num_stages = 0;  // tiles of 16 rows in a stage; number of stages
  int shared_bytes = 0;                 // shared memory of a block
  int weight_bytes = 0;                 // the last bytes of it, for mixing matrices
  int concurrent_stores = 0;            // warps of a strip whose results fit into shared memory at a time
  constexpr int threads() const { return 32 * warps_per_strip * strips; }
};

// The shared memory requirements of a kernel, in heads and in tiles of 16 rows of one head.
struct HeadMixingNeeds {
  int heads, warp_heads;    // heads divided among warps; maximum heads of a warp
  int resident_tiles;       // of a strip
  int max_stage_heads;      // heads of the largest operand
  int one_stage_tiles = 0;  // tiles of a stage if all work on a tile shares one; 0: never
  int exchanged_fragments = 0;
  int weight_rows = 0;  // rows of mixing matrices in shared memory
  // Streamed and resident tensors of a head, and whether a window is streamed with them (relative.h).
  int streamed_tensors = 1, resident_tensors = 1;
  bool window = false;
};

constexpr int kHeadMixingWarps = 8, kMaxStages = 4;
// Bytes of a warp's products with a window (16, 32), padded.
constexpr int kWindowProductBytes = 16 * (32 + 8) * static_cast<int>(sizeof(float));

// Heads of a warp, with accumulators in registers: `elements` of each row and head.
template <class T>
constexpr int max_warp_heads(int elements) {
  const int heads = (sizeof(T) == 4 ? 128 : 256) / elements;
  return heads < 1 ? 1 : heads > 4 ? 4 : heads;
}

// Rows of a matrix of `heads` rows in shared memory: rounded up to an even number, and one row of scales.
constexpr int rows_of_weights(int heads) { return (heads + 1) / 2 * 2 + 1; }

// num_stages is 0 if nothing fits into `limit` bytes. stride: row stride in elements.
template <class T>
constexpr HeadMixingPlan head_mixing_plan(const HeadMixingNeeds& n, int stride, int limit) {
  HeadMixingPlan plan;
  const int warps = (n.heads + n.warp_heads - 1) / n.warp_heads;
  const int tile_bytes = 16 * stride * static_cast<int>(sizeof(T)), fragment_bytes = 32 * (sizeof(T) == 4 ? 32 : 16);
  plan.warps_per_strip = warps < kHeadMixingWarps ? warps : kHeadMixingWarps;
  plan.head_blocks = (warps + plan.warps_per_strip - 1) / plan.warps_per_strip;
  plan.weight_bytes = sizeof(T) == 2 ? (n.weight_rows * plan.warps_per_strip * n.warp_heads * 4 + 15) / 16 * 16 : 0;
  // Streamed tiles of a head.
  const auto streamed_tiles = [&](int strips) { return n.streamed_tensors + (n.window ? 1 + strips : 0); };
  // Fills the plan for stages of `stage_tiles` tiles; returns whether there are at least `min_stages`.
  const auto fits = [&](int strips, int resident_tiles, int stage_tiles, int min_stages) {
    const int products = n.window ? plan.warps_per_strip * kWindowProductBytes : 0;
    const int fixed = strips * (resident_tiles * tile_bytes + n.exchanged_fragments * fragment_bytes + products) +
                      plan.weight_bytes,
              free = limit - fixed;
    plan.strips = strips, plan.resident_tiles = resident_tiles, plan.stage_tiles = stage_tiles;
    plan.num_stages = free < 0 || stage_tiles == 0 ? 0 : free / (stage_tiles * tile_bytes);
    plan.num_stages = plan.num_stages < kMaxStages ? plan.num_stages : kMaxStages;
    plan.shared_bytes = fixed + plan.num_stages * stage_tiles * tile_bytes;
    plan.concurrent_stores = plan.shared_bytes / (strips * tile_bytes) < plan.warps_per_strip
                                 ? plan.shared_bytes / (strips * tile_bytes)
                                 : plan.warps_per_strip;
    return plan.num_stages >= min_stages;
  };
  // All heads in a stage, with as many strips as warps allow.
  plan.heads_per_stage = n.max_stage_heads, plan.one_stage = n.one_stage_tiles > 0;
  for (int strips = kHeadMixingWarps / plan.warps_per_strip; strips > 0; strips /= 2)
    if (fits(strips, n.resident_tiles, plan.one_stage ? n.one_stage_tiles : n.max_stage_heads * streamed_tiles(strips),
             strips > 1 ? 2 : 1))
      return plan;
  // Groups with enough heads for every warp, in two stages; otherwise groups of fewer heads.
  plan.one_stage = false;
  for (const int min_heads : {plan.warps_per_strip < n.max_stage_heads ? plan.warps_per_strip : n.max_stage_heads, 1})
    for (const int min_stages : {2, 1})
      for (const int resident_tiles : {n.resident_tiles, 0})
        for (plan.heads_per_stage = n.max_stage_heads; plan.heads_per_stage >= min_heads; --plan.heads_per_stage)
          if (fits(1, resident_tiles,
                   plan.heads_per_stage * (streamed_tiles(1) + (resident_tiles > 0 ? 0 : n.resident_tensors)),
                   min_stages))
            return plan;
  plan.num_stages = 0;
  return plan;
}

}  // namespace mh::kernels
