// The parameters of a softmax cross-entropy and its results for a row, on every device.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct CrossEntropy {
  int64_t vocabulary;  // logits in a row
  float smoothing;     // e: loss = (1 - e) * nll(target) + e / vocabulary * sum over all entries of their nll
  bool gradient;       // replace the logits by d loss / d logits
};
struct CrossEntropyRow {
  double nll;       // -log p(target), nats
  double smoothed;  // the loss above
};

}  // namespace mh::kernels
