// Recomputation of activations in the backward pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
// Cost"), known as activation checkpointing.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mh::nn {

// A function of `inputs` that builds an autograd graph. It must return the same bits in every call. `is_recomputation`:
// whether the call repeats an earlier call, so that it must not change any state again.
using RecomputedFunction = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, bool is_recomputation)>;

// Returns function(inputs), differentiable with respect to the inputs and to all parameters that the function reads.
// Between the forward and the backward pass only the inputs are in memory; the backward pass calls the function again.
// The result and the gradients have the same bits as without recomputation, except that a tensor which several
// recomputed functions read in several places each, such as the output of an encoder, may receive its gradients in
// another order of additions. `function` is destroyed with the autograd graph; everything that it refers to must live
// until then.
at::Tensor recompute(const std::vector<at::Tensor>& inputs, const RecomputedFunction& function);

}  // namespace mh::nn
