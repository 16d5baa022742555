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
// The result and the gradients have the same bits as without recomputation, provided that a function reads a tensor
// that other recomputed functions read, too, such as the output of an encoder or a parameter of several layers, in one
// place only: several places would add their gradients in another order. Every layer of every backbone does so
// (tests/unit/model/recompute.cpp). `function` is destroyed with the autograd graph; everything that it refers to must
// live until then.
at::Tensor recompute(const std::vector<at::Tensor>& inputs, const RecomputedFunction& function);

}  // namespace mh::nn
