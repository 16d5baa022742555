// Parameters and per-row results of softmax cross-entropy, on CPUs and GPUs.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct CrossEntropy {
  int64_t vocabulary;  // number of logits of a row
  float smoothing;     // label smoothing e: loss = (1 - e) * nll(target) + e / vocabulary * Σ_i nll(i)
  bool gradient;       // whether d loss / d logits replaces the logits
};
struct CrossEntropyLoss {
  double nll;       // -log p(target), nats
  double smoothed;  // loss with label smoothing, nats
};

}  // namespace mh::kernels
