// Sigsoftmax (Kanai et al. 2018; in attention: Zhang et al. 2022): P ∝ exp(A) σ(A), so P = softmax(2A - softplus(A)).
// Unlike softmax, sigsoftmax is not invariant to a constant that is added to the logits of a row.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns probabilities p ∝ exp(a) σ(a) of logits a, with masks and sinks as in masked_softmax()
// (attention/masked_softmax.h); the weight of a sink ψ is exp(ψ). Differentiable; saves the logits and the
// probabilities for the backward pass.
at::Tensor masked_sigmoid_softmax(const at::Tensor& logits, const at::Tensor& attention_mask,
                                  const at::Tensor& sinks = {});

}  // namespace mh::attention
