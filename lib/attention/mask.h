// A description of the attention mask. Our kernels read it directly; the composed path and SDPA turn it into a tensor.
// In boolean masks, true means that the query may attend to the key.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace mh::attention {

struct Mask {
  bool causal = false;
  int64_t offset = 0;        // causal: query t sees keys s <= t + offset; > 0 after cached or memory positions
  int64_t window = 0;        // > 0: only keys s > t + offset - window are visible
  at::Tensor key_lengths;    // (B) int64, or undefined: only keys s < key_lengths[b] are real (not padding)
  at::Tensor query_lengths;  // (B) int64, or undefined: only queries t < query_lengths[b] are real. Hides no key: read
                             // only by stages that average over queries, to leave out padding
  // (Tk) int64: position of each key relative to the first query (negative: before it); undefined: s - offset. Keys of
  // a memory may have gaps between them. Read by scores with relative positions.
  at::Tensor key_positions;
  at::Tensor additive;  // fp32, broadcastable to (B, h, Tq, Tk), or undefined: added to the logits

  // Returns the offset of a causal mask; empty for any other mask.
  std::optional<int64_t> causal_offset() const { return causal ? std::optional(offset) : std::nullopt; }
};

// Returns key or query lengths (B) on the device; undefined if every row has all `positions`, so that no mask is
// needed.
at::Tensor shorter(const at::Tensor& lengths, int64_t positions, at::Device device);

// Returns one boolean mask, broadcastable to (B, h, Tq, Tk), for causal, window, key_lengths and additive (which hides
// entries by minus infinity); undefined if none of them hides anything.
at::Tensor allowed(const Mask& mask, int64_t queries, int64_t keys, at::Device device);

}  // namespace mh::attention
