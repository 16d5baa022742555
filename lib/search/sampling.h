// Sampling of tokens from a model's distribution.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace mh::search {

// Returns an index drawn from softmax(logits / temperature), restricted to the `top_k` largest logits (0: all logits);
// of two equal logits, the logit with the smaller index counts as larger. At temperature 0, returns the index of the
// largest logit without a random draw.
int32_t sample_token(std::span<const float> logits, double temperature, int64_t top_k, RandomSequence& random);

}  // namespace mh::search
