// The grid of a launch: numbers of blocks in x, y and z.
#pragma once

namespace mh::kernels {

struct Grid {
  int x = 1, y = 1, z = 1;
};

// Returns why the grid is too large for a GPU in y or z; null if it is not. CUDA limits y and z to 65535 blocks.
inline const char* grid_problem(const Grid& grid) {
  constexpr unsigned kMaxBlocks = 65535;  // unsigned, so that a negative (overflowed) size exceeds the limit
  if (static_cast<unsigned>(grid.y) > kMaxBlocks)
    return "expected at most 65535 for batch rows times heads; found more; use fewer rows per batch";
  if (static_cast<unsigned>(grid.z) > kMaxBlocks)
    return "expected at most 65535 groups of heads or splits of keys; found more; use fewer heads";
  return nullptr;
}

}  // namespace mh::kernels
