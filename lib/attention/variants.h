// Variants of the rows of a batch: a layer computes what they share once, then goes on with a copy of a row for each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mh::attention {

struct Context;

// A pass is given blocks of B rows and goes on with `count` blocks, (count·B, …): row f·B + b is a copy of row b of
// block from[f]. Outside of training.
struct Variants {
  int64_t count = 0;  // 0: rows are not repeated
  // The given blocks come first, in their order: 0, 1, 2, …, then any of them again. Empty: one block is given.
  std::vector<int64_t> from = {};

  // x (blocks·B, …) -> (count·B, …); undefined stays undefined.
  at::Tensor repeat(const at::Tensor& x) const;
  // Repeats what is left to read of a pass: of its inputs and mask, if the score heads are the first that differ; of
  // the combiner's weights.
  void repeat_inputs(Context& context) const;
  void repeat_weights(Context& context) const;
};

}  // namespace mh::attention
