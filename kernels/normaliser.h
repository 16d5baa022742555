// The normalisers of attention, which turn logits into probabilities.
#pragma once

#include <cstdint>

namespace mh::kernels {

// softmax, or Sigsoftmax (Kanai et al. 2018): P ∝ exp(A) σ(A) = softmax(2A - softplus(A)).
enum class Normaliser : uint8_t { softmax, sigsoftmax };

}  // namespace mh::kernels
