// The block layout of head-mixing kernels, computed on the host from the available shared memory.
#pragma once

#include "cuda/fragment.h"

namespace mh::kernels {

// The order of blocks over tiles of queries or keys and batch rows: tiles with the most work first, so that no long
// tile begins late, and as many batch rows in parallel as fit in the L2 cache.
struct BlockOrder {
  int tiles = 0, batch = 0, at_once = 1;
  struct Place {
    int tile, row;
  };
  constexpr int blocks() const { return tiles * batch; }
  // reversed: the last tile has the most work.
  template <class Thread>
  MH_DEVICE Place place(const Thread& thread, bool reversed) const {
    const int group = thread.block_x() / (at_once * tiles), first = group * at_once,
              within = thread.block_x() - first * tiles;
    const int rows = batch - first < at_once ? batch - first : at_once, tile = within / rows;
    return {reversed ? tiles - 1 - tile : tile, first + within % rows};
  }
};

struct MixedPlan {
  int groups = 0, strips = 0;  // warps of a strip; strips of 16 rows
  int blocks = 0;              // number of blocks that divide the heads
  int heads = 0;               // heads in a stage; if fewer than all, tiles come in parts
  int kept = 0;              // resident tiles of a strip; 0: loaded again with each tile that they are multiplied with
  bool whole = false;        // a stage has the rows of all parts of the work
  int place = 0, slots = 0;  // tiles of 16 rows in a stage; number of stages
  int bytes = 0;             // shared memory
  int weights = 0;           // bytes of these, at the end, for elements of matrices
  int storing = 0;           // warps of a strip with room for their results
  constexpr int threads() const { return 32 * groups * strips; }
};

// The shared memory requirements of a kernel, in heads and in tiles of 16 rows of one head.
struct MixedNeeds {
  int divided, own;  // heads divided among warps, and maximum heads of a warp
  int staying;       // resident tiles of a strip
  int meeting;       // heads processed between two exchanges
  int together = 0;  // tiles of a stage if all work on a tile shares one; 0: never
  int exchanged = 0;
  int weights = 0;  // elements of matrices in shared memory for each divided head
  // Streamed and resident tensors of a head, and whether a window is streamed with them (mixed_relative.h).
  int coming = 1, stays = 1;
  bool window = false;
};

constexpr int kMixedWarps = 8, kMostSlots = 4;
// Bytes of a warp's products with a window (16, 32), padded.
constexpr int kShiftedBytes = 16 * (32 + 8) * static_cast<int>(sizeof(float));

// Heads of a warp, with accumulators in registers: `sums` elements of each row and head.
template <class T>
constexpr int heads_of_warp(int sums) {
  const int most = (sizeof(T) == 4 ? 128 : 256) / sums;
  return most < 1 ? 1 : most > 4 ? 4 : most;
}

// Rows of a matrix of `heads` rows in shared memory: rounded up to an even number, and one row of scales.
constexpr int rows_of_weights(int heads) { return (heads + 1) / 2 * 2 + 1; }

// slots is 0 if nothing fits into `limit` bytes. stride: row stride in elements.
template <class T>
constexpr MixedPlan mixed_plan(const MixedNeeds& n, int stride, int limit) {
  MixedPlan plan;
  const int all = (n.divided + n.own - 1) / n.own;
  const int of_tile = 16 * stride * static_cast<int>(sizeof(T)), fragment = 32 * (sizeof(T) == 4 ? 32 : 16);
  plan.groups = all < kMixedWarps ? all : kMixedWarps;
  plan.blocks = (all + plan.groups - 1) / plan.groups;
  plan.weights = sizeof(T) == 2 ? (n.weights * plan.groups * n.own * 4 + 15) / 16 * 16 : 0;
  // Streamed tiles of a head.
  const auto coming = [&](int strips) { return n.coming + (n.window ? 1 + strips : 0); };
  // Fills the plan for `kept` resident tiles of a strip and stages of `place` tiles; returns whether there are `slots`
  // stages.
  const auto fits = [&](int strips, int kept, int place, int slots) {
    const int products = n.window ? plan.groups * kShiftedBytes : 0;
    const int fixed = strips * (kept * of_tile + n.exchanged * fragment + products) + plan.weights,
              left = limit - fixed;
    plan.strips = strips, plan.kept = kept, plan.place = place;
    plan.slots = left < 0 || place == 0 ? 0 : left / (place * of_tile);
    plan.slots = plan.slots < kMostSlots ? plan.slots : kMostSlots;
    plan.bytes = fixed + plan.slots * place * of_tile;
    plan.storing = plan.bytes / (strips * of_tile) < plan.groups ? plan.bytes / (strips * of_tile) : plan.groups;
    return plan.slots >= slots;
  };
  // All heads at once, with as many strips as warps allow.
  plan.heads = n.meeting, plan.whole = n.together > 0;
  for (int strips = kMixedWarps / plan.groups; strips > 0; strips /= 2)
    if (fits(strips, n.staying, plan.whole ? n.together : n.meeting * coming(strips), strips > 1 ? 2 : 1)) return plan;
  // Parts with enough heads for every warp, two parts in memory; otherwise parts of fewer heads.
  plan.whole = false;
  for (const int least : {plan.groups < n.meeting ? plan.groups : n.meeting, 1})
    for (const int slots : {2, 1})
      for (const int kept : {n.staying, 0})
        for (plan.heads = n.meeting; plan.heads >= least; --plan.heads)
          if (fits(1, kept, plan.heads * (coming(1) + (kept > 0 ? 0 : n.stays)), slots)) return plan;
  plan.slots = 0;
  return plan;
}

}  // namespace mh::kernels
