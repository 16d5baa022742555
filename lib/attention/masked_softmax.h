// Masked softmax, the core of every normaliser. It saves one large tensor for the backward pass: the probabilities.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns probabilities p of the shape of logits (B, h, Tq, Tk): the allowed entries of a row sum to 1, the others are
// exactly 0; a fully masked row is zero. `allowed` is a broadcastable boolean mask (true: may attend), or undefined. It
// must also hide the entries where an additive mask is minus infinity, as allowed() does (mask.h), so that allowed
// logits are finite.
at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& allowed);

// As masked_softmax(), for logits that the caller no longer needs: p overwrites them if nothing else references them
// (buffer_reuse.h).
at::Tensor masked_softmax_in_place(const at::Tensor& logits, const at::Tensor& allowed);

// As masked_softmax(), with p ∝ exp(a) σ(a). Saves the logits a, too.
at::Tensor masked_sigmoid_softmax(const at::Tensor& logits, const at::Tensor& allowed);

}  // namespace mh::attention
