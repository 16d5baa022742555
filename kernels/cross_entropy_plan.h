// The parameters and per-row results of softmax cross-entropy, on every device.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct CrossEntropy {
  int64_t vocabulary;  // logits in a row
  float smoothing;     // e: loss = (1 - e) * nll(target) + e / vocabulary * sum over all entries of their nll
  bool gradient;       // replaces the logits by d loss / d logits
};
struct CrossEntropyRow {
  double nll;       // -log p(target), nats
  double smoothed;  // loss with label smoothing
};

}  // namespace mh::kernels
