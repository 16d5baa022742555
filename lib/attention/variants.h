// Variants of the rows of a batch, for example one for each ablated head. A layer computes the part that all variants
// share once, then continues with a copy of each row per variant.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mh::attention {

struct Context;

// A pass receives one or more blocks of B rows and continues with `count` blocks, (count·B, …): row f·B + b is a copy
// of row b of input block from[f]. In evaluation only.
struct Variants {
  int64_t count = 0;  // 0: rows are not repeated
  // (count): input block of each variant. All input blocks come first in order, 0, 1, 2, …, then any of them again.
  // Empty: one input block.
  std::vector<int64_t> from = {};

  // Repeats x (blocks·B, …) to (count·B, …); an undefined tensor stays undefined.
  at::Tensor repeat(const at::Tensor& x) const;
  // repeat_inputs() repeats the inputs and the mask of a pass, for variants that begin at the score heads;
  // repeat_weights() repeats the combiner's weights.
  void repeat_inputs(Context& context) const;
  void repeat_weights(Context& context) const;
};

}  // namespace mh::attention
