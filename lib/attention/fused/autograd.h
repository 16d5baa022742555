// The autograd function of all fused attention kernels. Each backend (CPU or GPU, with or without head mixing) is a
// struct with a forward and a backward pass. Saved tensors and gradients have names instead of positions in a list.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>
#include <vector>

#include "attention/fused/attention_spec.h"

namespace mh::attention {

// The inputs of a backend. With spec.kv_head_of, k and v may have numbers of heads other than h and hv.
struct Operands {
  at::Tensor q, k, v;      // (B, h, Tq, dk), (B, h, Tk, dk), (B, hv, Tk, dv); last axis contiguous
  at::Tensor matrix = {};  // mixing matrix, fp32: (h, hv), (B, h, hv) or (B, Tq, h, hv); undefined: no mixing
  AttentionSpec spec = {};
};

// The tensors that the forward pass of a backend writes: `out` for the caller, `lse` for the backward pass.
struct ForwardResult {
  at::Tensor out;  // (B, hv, Tq, dv)
  at::Tensor lse;  // (B, h, Tq), fp32: log-sum-exp of the logits of each query, nats; +inf for a fully masked row
};

// Gradients of the operands; undefined if the operand is undefined, or if sinks or a position bias require none. A
// backend returns gradients in the shapes of the operands. During its backward pass, gradients may be partial sums, and
// k and v may have one head for each query head.
struct OperandGradients {
  at::Tensor q, k, v, matrix = {}, head_scales = {}, u = {}, v_bias = {}, r = {}, sinks = {}, position_bias = {};
};

// Wraps a value of any type for an autograd context.
template <class T>
struct SavedValue : torch::CustomClassHolder {
  T value;
};
// Stores a value of any type in an autograd context, by name.
template <class T>
void save_value(torch::autograd::AutogradContext& context, const char* name, T value) {
  auto saved = c10::make_intrusive<SavedValue<T>>();
  saved->value = std::move(value);
  context.saved_data[name] = at::IValue::make_capsule(std::move(saved));
}
// Returns the value that save_value() stored under this name.
template <class T>
T restore_value(torch::autograd::AutogradContext& context, const char* name) {
  return c10::static_intrusive_pointer_cast<SavedValue<T>>(context.saved_data.at(name).toCapsule())->value;
}

// The operands and the result of a forward pass, for its backward pass. result.out is undefined if the backend does not
// read it (kBackwardReadsOut).
struct SavedAttention {
  Operands operands;
  ForwardResult result;

  void save(torch::autograd::AutogradContext& context) const;
  static SavedAttention restore(torch::autograd::AutogradContext& context);
};

// Allocates the result of a fused attention: out, stored as (B, Tq, hv, dv), and lse.
ForwardResult empty_result(const Operands& x);
// Allocates the gradients of q, k and v, stored as (B, T, heads, size). The gradient of k has one head for each query
// head, the gradient of v one for each value head. `shares_storage`: if the numbers of queries and keys are
// equal, the three gradients are adjacent slices of one tensor, as in a joint projection, so that the backward pass of
// split_projection() copies nothing.
OperandGradients empty_gradients(const Operands& x, bool shares_storage);

// Returns whether gradients are enabled and an operand requires one.
bool needs_gradient(const Operands& x);
// Returns the defined operands that may have a gradient.
std::vector<at::Tensor> differentiable_inputs(const Operands& x);
// Returns the gradients of the operands that differentiable_inputs() returns, in the same order.
torch::autograd::variable_list ordered_gradients(const Operands& x, const OperandGradients& gradients);

// The autograd function of a backend. The struct Backend has ForwardResult forward(x, needs_backward) const, where
// needs_backward is true if a backward pass follows; OperandGradients backward(saved, dout) const; and the constant
// kBackwardReadsOut, which is true if backward() reads saved.result.out.
template <class Backend>
struct FusedAttention : torch::autograd::Function<FusedAttention<Backend>> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList /*differentiable*/,
                            const Operands& x, const Backend& backend) {
    ForwardResult result = backend.forward(x, true);
    at::Tensor out = result.out;
    if (!Backend::kBackwardReadsOut) result.out = at::Tensor();
    SavedAttention{x, result}.save(*context);
    save_value(*context, "backend", backend);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list douts) {
    const SavedAttention saved = SavedAttention::restore(*context);
    const auto backend = restore_value<Backend>(*context, "backend");
    auto gradients = ordered_gradients(saved.operands, backend.backward(saved, douts[0]));
    gradients.resize(gradients.size() + 2);  // two undefined gradients, for the arguments x and backend
    return gradients;
  }
};

// Returns the result (B, hv, Tq, dv) of the fused attention of a backend, differentiable in differentiable_inputs(x).
template <class Backend>
at::Tensor attend(const Backend& backend, const Operands& x) {
  if (!needs_gradient(x)) return backend.forward(x, false).out;
  const std::vector<at::Tensor> inputs = differentiable_inputs(x);
  at::TensorList input_list = inputs;
  return FusedAttention<Backend>::apply(input_list, x, backend);
}

}  // namespace mh::attention
