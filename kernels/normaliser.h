// The normalisers of attention, which turn logits into probabilities.
#pragma once

#include <cstdint>

namespace mh::kernels {

// softmax, or Sigsoftmax (Kanai et al. 2018): P = softmax(2A - softplus(A)) ∝ exp(A) σ(A).
enum class Normaliser : uint8_t { softmax, sigsoftmax };

}  // namespace mh::kernels
