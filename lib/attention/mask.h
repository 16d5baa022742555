// Who may attend to whom, as a description; a tensor is made of it on the composed path only.
// Polarity everywhere: true = may attend.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace mh::attention {

struct Mask {
  bool causal = false;
  int64_t offset = 0;        // causal: query t may see keys s <= t + offset (cached positions or memory in front)
  int64_t window = 0;        // > 0: and s > t + offset - window
  at::Tensor key_lengths;    // (B) int64, or undefined: only keys s < key_lengths[b] are real
  at::Tensor query_lengths;  // (B) int64, or undefined: only queries t < query_lengths[b] are real. Restricts nothing;
                             // what averages over queries leaves the others out
  // (Tk) int64, or undefined: the position of each key, counted from the first query (negative: before it). Undefined:
  // s - offset. Keys of a memory may have gaps between them. Read by what knows distances.
  at::Tensor key_positions;
  at::Tensor additive;  // fp32, broadcastable to (B, h, Tq, Tk), or undefined: added to the logits

  // Of a causal mask: the offset; of another: undefined, every key counts.
  std::optional<int64_t> causal_offset() const { return causal ? std::optional(offset) : std::nullopt; }
};

// Lengths of rows, as Mask has them: (B) on the device, or undefined where all `positions` of every row are real.
at::Tensor shorter(const at::Tensor& lengths, int64_t positions, at::Device device);

// (1 or B, 1 or h, Tq, Tk) bool of causal, window, key_lengths, and of additive, which hides what it adds minus
// infinity to; undefined when none of them restricts anything.
at::Tensor allowed(const Mask& mask, int64_t queries, int64_t keys, at::Device device);

}  // namespace mh::attention
