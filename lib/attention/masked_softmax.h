// The core of every normaliser: rows of logits to probabilities under a mask, keeping one large tensor for the backward
// pass, the probabilities themselves.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// logits (B, h, Tq, Tk) -> p of the same shape; rows over allowed entries sum to 1, the others are exactly 0, a row
// without any is zeros. `allowed` is bool, broadcastable, true = may attend, or undefined; it hides what an additive
// mask sets to minus infinity too (mask.h), so a row's allowed logits are numbers.
at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& allowed);

// The same of logits that the caller reads no more: p takes their place where nobody else holds them.
at::Tensor masked_softmax_in_place(const at::Tensor& logits, const at::Tensor& allowed);

// The same with p ∝ exp(a) σ(a); it keeps the logits too.
at::Tensor masked_sigmoid_softmax(const at::Tensor& logits, const at::Tensor& allowed);

}  // namespace mh::attention
