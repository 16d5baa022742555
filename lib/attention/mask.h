// Description of an attention mask. The fused kernels read the description directly. The composed path converts the
// description to a mask tensor, and so does SDPA, unless the mask is only causal and the numbers of queries and keys
// are equal. In boolean mask tensors, true means that the query may attend to the key.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace mh::attention {

struct Mask {
  bool causal = false;
  // With `causal`, query t sees keys s <= t + offset. If `offset` is positive, keys of a cache or a memory precede
  // query 0.
  int64_t offset = 0;
  // > 0: query t sees only keys s > t + offset - window, and, without `causal`, s < t + offset + window; 0: unlimited.
  int64_t window = 0;
  // (B) int64: only keys s < key_lengths[b] are real (not padding); undefined: all keys are real. Padding keys and
  // values must be finite: the composed path and SDPA multiply them by probabilities and gradients that are 0. Only the
  // fused CPU kernels and the fused GPU kernel without head mixing do not read padding.
  at::Tensor key_lengths;
  // (B) int64: only queries t < query_lengths[b] are real (not padding); undefined: all queries are real. Masks no key;
  // stages that average over queries use the lengths to exclude padding.
  at::Tensor query_lengths;
  // Position of query 0 in its text: the number of positions that precede it. Transforms with absolute positions read
  // it; keys and queries of one text must have consistent positions in all forward passes that share a cache.
  int64_t first_position = 0;
  // (Tk) int64: position of each key relative to the first query, negative for earlier keys; undefined: key s has
  // position s - offset. The positions of a memory may have gaps. Scores with relative positions and transforms with
  // absolute positions read this tensor.
  at::Tensor key_positions;
  at::Tensor additive;  // mask that is added to the logits, fp32, broadcastable to (B, h, Tq, Tk); or undefined

  // Returns the offset of a causal mask; empty for any other mask.
  std::optional<int64_t> causal_offset() const { return causal ? std::optional(offset) : std::nullopt; }
};

// Returns key or query lengths (B), copied to the device. Returns an undefined tensor, since no mask is needed, if
// `lengths` is undefined or every row has at least `num_positions` real positions.
at::Tensor lengths_if_padded(const at::Tensor& lengths, int64_t num_positions, at::Device device);

// Returns the boolean mask, broadcastable to (B, h, Tq, Tk), that combines `causal`, `window`, `key_lengths` and the
// entries of `additive` that are minus infinity. Returns an undefined tensor if the mask has no window, no key lengths
// and no additive mask, and is either not causal or hides no key.
at::Tensor boolean_mask(const Mask& mask, int64_t num_queries, int64_t num_keys, at::Device device);

}  // namespace mh::attention
