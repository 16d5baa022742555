// Variants of a batch, for example one for each ablated head. All variants share one forward pass up to the point where
// they differ; from there a layer continues with a copy of each batch row for each variant.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mh::attention {

struct Context;

// The variants of one forward pass, in evaluation only. A variant is one version of the computation that an interceptor
// changes, for example the computation without one head. The input has one or more groups of B batch rows; repeat()
// returns `count` groups, (count·B, …), one for each variant: row v·B + b, of variant v, is a copy of row b of input
// group source_groups[v].
struct Variants {
  int64_t count = 0;  // number of variants; 0: batch rows are not repeated
  // (count): input group of each variant. The first variants have each input group once, in order; the other variants
  // may have any input group. Empty: there is one input group.
  std::vector<int64_t> source_groups = {};

  // Repeats x (groups·B, …) to (count·B, …); an undefined tensor stays undefined.
  at::Tensor repeat(const at::Tensor& x) const;
  // Repeats the inputs and the mask of a forward pass. Called if score heads are the first heads of the layer that the
  // interceptor changes, so that all later computations need repeated inputs.
  void repeat_inputs(Context& context) const;
  // Repeats the weights (B, …) of the combiners in the context; weights (hv), which all rows share, stay unchanged.
  void repeat_head_weights(Context& context) const;
};

}  // namespace mh::attention
