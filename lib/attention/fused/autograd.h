// The autograd function of all fused attention kernels. Each backend (CPU or GPU, with head mixing or without) is a
// struct with a forward and a backward pass. Saved tensors and gradients have names, not positions in a list.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>
#include <vector>

#include "attention/fused/attention_spec.h"

namespace mh::attention {

// The inputs of a fused attention.
struct Operands {
  at::Tensor q, k, v;      // (B, h, Tq, dk), (B, h, Tk, dk), (B, hv, Tk, dv); each row (d) contiguous
  at::Tensor matrix = {};  // mixing matrix, fp32: (h, hv), (B, h, hv) or (B, Tq, h, hv); undefined: no mixing
  AttentionSpec spec = {};
};

struct ForwardResult {
  at::Tensor out;  // (B, hv, Tq, dv)
  at::Tensor lse;  // (B, h, Tq), fp32: log-sum-exp of each query, nats
};

// Gradients of the operands; undefined for an undefined operand.
struct OperandGradients {
  at::Tensor q, k, v, matrix = {}, head_scales = {}, u = {}, v_bias = {}, r = {};
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
template <class T>
T restore_value(torch::autograd::AutogradContext& context, const char* name) {
  return c10::static_intrusive_pointer_cast<SavedValue<T>>(context.saved_data.at(name).toCapsule())->value;
}

// The tensors of a forward pass that its backward pass reads.
struct SavedAttention {
  Operands x;
  ForwardResult result;

  void save(torch::autograd::AutogradContext& context) const;
  static SavedAttention restore(torch::autograd::AutogradContext& context);
};

// Allocates the result of a fused attention: out, stored as (B, Tq, hv, dv), and lse.
ForwardResult empty_result(const Operands& x);
// Allocates the gradients of q, k and v, stored as (B, T, heads, size). The gradients of k and v have one head per
// reader. `joint`: if there are as many queries as keys, the three are adjacent slices of one tensor, as in a joint
// projection, so that the backward pass of split_projection() copies nothing.
OperandGradients empty_gradients(const Operands& x, bool joint);

// Returns whether gradients are enabled and an operand requires one.
bool needs_gradient(const Operands& x);
// differentiable() returns the defined operands that may have a gradient, in_order() their gradients in the same order.
std::vector<at::Tensor> differentiable(const Operands& x);
torch::autograd::variable_list in_order(const Operands& x, const OperandGradients& gradients);

// The autograd function of a backend, which has ForwardResult forward(x, gradient) const, OperandGradients
// backward(saved, dout) const, and kReadsOut, whether backward() reads saved.result.out. `gradient`: a backward pass
// follows.
template <class Backend>
struct FusedAttention : torch::autograd::Function<FusedAttention<Backend>> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList /*differentiable*/,
                            const Operands& x, const Backend& backend) {
    ForwardResult result = backend.forward(x, true);
    at::Tensor out = result.out;
    if (!Backend::kReadsOut) result.out = at::Tensor();
    SavedAttention{x, result}.save(*context);
    save_value(*context, "backend", backend);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list douts) {
    const SavedAttention saved = SavedAttention::restore(*context);
    const auto backend = restore_value<Backend>(*context, "backend");
    auto gradients = in_order(saved.x, backend.backward(saved, douts[0]));
    gradients.resize(gradients.size() + 2);  // undefined, for the arguments x and backend
    return gradients;
  }
};

// Returns the result of a fused attention, differentiable in all tensors of x.
template <class Backend>
at::Tensor attend(const Backend& backend, const Operands& x) {
  if (!needs_gradient(x)) return backend.forward(x, false).out;
  const std::vector<at::Tensor> inputs = differentiable(x);
  at::TensorList list = inputs;
  return FusedAttention<Backend>::apply(list, x, backend);
}

}  // namespace mh::attention
