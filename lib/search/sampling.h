// Sampling of tokens from a model's distribution.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace mh::search {

// Returns an index of `logits`, drawn from softmax(logits / temperature) over the `top_k` largest (0: all); of equal
// logits the one with the smaller index counts as larger. At temperature 0 returns the largest, without a draw.
int32_t draw(std::span<const float> logits, double temperature, int64_t top_k, RandomSequence& random);

}  // namespace mh::search
