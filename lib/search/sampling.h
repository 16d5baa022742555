// Draws tokens from a model's distribution.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace mh::search {

// One of `logits`, by softmax(logits / temperature) over the `top_k` largest (0: over all); of equal ones the smaller
// counts as the larger. At temperature 0 always the largest, and nothing is drawn.
int32_t draw(std::span<const float> logits, double temperature, int64_t top_k, RandomSequence& random);

}  // namespace mh::search
