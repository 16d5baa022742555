// How the blocks of the kernels for mixed heads are made up: by the host, from what fits into shared memory.
#pragma once

#include "cuda/fragment.h"

namespace mh::kernels {

// How blocks of a grid's x go through tiles of queries or keys and rows of the batch: those with the most work first,
// so that no block begins late with a long tile, and as many rows of the batch side by side as the L2 cache has place
// for.
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
  int blocks = 0;              // among which the heads that are divided are
  int heads = 0;               // whose rows are in a place at once; of fewer than there are, tiles come in parts
  int kept = 0;                // tiles of a strip that stay in memory; 0: they are loaded with each tile that they meet
  bool whole = false;          // a place has what all parts of the work read
  int place = 0, slots = 0;    // tiles of 16 rows of a place; places
  int bytes = 0;               // of shared memory
  int weights = 0;             // of these, at their end, for numbers of matrices
  int storing = 0;             // warps of a strip whose results it has room for
  constexpr int threads() const { return 32 * groups * strips; }
};

// The shared memory that a kernel needs, in heads and in tiles of 16 rows of one head.
struct MixedNeeds {
  int divided, own;  // heads that are divided among warps, and how many at most to a warp
  int staying;       // tiles of a strip that stay
  int meeting;       // heads that are worked at between two exchanges
  int together = 0;  // tiles that a place has if all work on a tile shares one; 0: it never does
  int exchanged = 0;
  int weights = 0;  // numbers of matrices that each head that is divided has in shared memory
  // Tensors of a head that come by and that stay, and whether a window comes with them (mixed_relative.h).
  int coming = 1, stays = 1;
  bool window = false;
};

constexpr int kMixedWarps = 8, kMostSlots = 4;
// Of a warp's products with a window (16, 32), padded.
constexpr int kShiftedBytes = 16 * (32 + 8) * static_cast<int>(sizeof(float));

// Heads of a warp, whose sums are in its registers: `sums` numbers of each row and head.
template <class T>
constexpr int heads_of_warp(int sums) {
  const int most = (sizeof(T) == 4 ? 128 : 256) / sums;
  return most < 1 ? 1 : most > 4 ? 4 : most;
}

// Rows of a matrix of `heads` rows in shared memory: rounded up to an even number, and one of scales.
constexpr int rows_of_weights(int heads) { return (heads + 1) / 2 * 2 + 1; }

// slots is 0 where nothing fits into `limit` bytes. stride: elements from row to row.
template <class T>
constexpr MixedPlan mixed_plan(const MixedNeeds& n, int stride, int limit) {
  MixedPlan plan;
  const int all = (n.divided + n.own - 1) / n.own;
  const int of_tile = 16 * stride * static_cast<int>(sizeof(T)), fragment = 32 * (sizeof(T) == 4 ? 32 : 16);
  plan.groups = all < kMixedWarps ? all : kMixedWarps;
  plan.blocks = (all + plan.groups - 1) / plan.groups;
  plan.weights = sizeof(T) == 2 ? (n.weights * plan.groups * n.own * 4 + 15) / 16 * 16 : 0;
  // Tiles that come for a head.
  const auto coming = [&](int strips) { return n.coming + (n.window ? 1 + strips : 0); };
  // Fills the plan for `kept` tiles of a strip that stay and places of `place` tiles; whether there are `slots` places.
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
  // All heads at once, and as many strips as there are warps for.
  plan.heads = n.meeting, plan.whole = n.together > 0;
  for (int strips = kMixedWarps / plan.groups; strips > 0; strips /= 2)
    if (fits(strips, n.staying, plan.whole ? n.together : n.meeting * coming(strips), strips > 1 ? 2 : 1)) return plan;
  // Parts of enough heads that every warp has work, two parts in memory; else parts of fewer heads.
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
