// The grid of a launch, in blocks.
#pragma once

namespace mh::kernels {

struct Grid {
  int x = 1, y = 1, z = 1;
};

}  // namespace mh::kernels
