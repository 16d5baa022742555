// Arguments of the optimiser kernels on a GPU, which update any number of tensors in few launches. The update of one
// element is in kernels/optimizer_rules.h. The pointers in these structs are to GPU memory.
#pragma once

#include "optimizer_rules.h"

namespace mh::kernels {

// Number of elements of a chunk, the part of one tensor that a block processes; the last chunk of a tensor may have
// fewer elements.
constexpr int64_t kUpdateChunkSize = 8192;

// The update of one parameter tensor of `count` elements.
template <class Params>
struct Update {
  Params params;
  int64_t count;
  float* p;              // parameters
  const float* g;        // gradients
  float* first_moment;   // first moments, or the momentum buffer
  float* second_moment;  // second moments of Adam, otherwise null
  uint16_t* bf16_copy;   // bf16 copy of the updated parameters, overwritten; null: none
};

// A tensor whose sum of squares is computed: `count` elements at x.
struct FloatSpan {
  int64_t count;
  const float* x;
};

}  // namespace mh::kernels
