// Parameters and per-row results of softmax cross-entropy, on CPUs and GPUs.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct CrossEntropyParams {
  int64_t vocabulary_size;  // number of logits of a row
  float label_smoothing;    // e in loss = (1 - e) * nll(target) + e / vocabulary_size * Σ_i nll(i)
  bool needs_gradient;      // whether the gradient d loss / d logits replaces the logits
};
struct CrossEntropyLoss {
  double nll;            // -log p(target), nats
  double smoothed_loss;  // loss with label smoothing, nats
};

}  // namespace mh::kernels
