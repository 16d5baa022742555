// One row of a softmax cross-entropy, and its gradient in place of the logits.
#pragma once

#include "cross_entropy_plan.h"

namespace mh::kernels {

// target in [0, vocabulary).
CrossEntropyRow cross_entropy_row(const CrossEntropy& how, float* logits, int64_t target);
CrossEntropyRow cross_entropy_row(const CrossEntropy& how, uint16_t* logits, int64_t target);  // bf16

}  // namespace mh::kernels
