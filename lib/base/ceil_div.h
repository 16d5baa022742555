// Ceiling division, for numbers of blocks, tiles and work items.
#pragma once

#include <cstdint>

namespace mh {

// Returns ⌈a / b⌉ for a ≥ 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace mh
