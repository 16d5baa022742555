// One row of a softmax cross-entropy, and its gradient in place of the logits.
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

// target in [0, vocabulary).
CrossEntropyRow cross_entropy_row(const CrossEntropy& how, float* logits, int64_t target);
CrossEntropyRow cross_entropy_row(const CrossEntropy& how, uint16_t* logits, int64_t target);  // bf16

}  // namespace mh::kernels
