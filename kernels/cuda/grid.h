// The grid of a launch: numbers of blocks in x, y and z.
#pragma once

namespace mh::kernels {

struct Grid {
  int x = 1, y = 1, z = 1;
};

}  // namespace mh::kernels
