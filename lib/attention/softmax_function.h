// The autograd function of a masked softmax of transformed logits, p ∝ exp(f(a)). For the backward pass it saves the
// probabilities and, unless f is the identity, the logits. masked_softmax.cpp instantiates it for f(a) = a; a
// normaliser of methods/ instantiates it for a function of its own.
//
// With a sink ψ of each head, p_s = exp(f(a_s)) / (exp(ψ) + Σ_s' exp(f(a_s'))): the sink takes part with the
// probability p_ψ = exp(ψ) / (exp(ψ) + Σ_s' exp(f(a_s'))), which is not part of the result. The gradient of the logits
// has the same form as without sinks; dψ = -Σ_t p_ψ[t] Σ_s p[t, s] dp[t, s].
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>

#include "attention/buffer_reuse.h"
#include "cpu/softmax.h"
#include "nn/aten.h"

namespace mh::attention {

// Returns whether softmax_rows() and softmax_rows_backward() support tensors of the type and device of x: fp32 on a
// CPU.
bool has_row_kernel(const at::Tensor& x);

// Computes the probabilities p of the logits a, (B, h, Tq, Tk), contiguous, with the row kernel `kind`. p and a may be
// the same memory. `attention_mask` as in masked_softmax().
void softmax_rows(kernels::SoftmaxKind kind, const at::Tensor& a, const at::Tensor& attention_mask, at::Tensor& p);
// Computes da, the gradient of the logits, from the gradient dp of the probabilities p, all (B, h, Tq, Tk), contiguous.
// da and dp may be the same memory. `a`: the logits; undefined if the kernel `kind` does not read them.
void softmax_rows_backward(kernels::SoftmaxKind kind, const at::Tensor& a, const at::Tensor& p, const at::Tensor& dp,
                           const at::Tensor& da);
// Returns the masked softmax of x by LibTorch operations, for devices and types without a row kernel.
at::Tensor softmax_by_tensor_ops(const at::Tensor& x, const at::Tensor& attention_mask);
// Probabilities (B, h, Tq, Tk) of the keys and (B, h, Tq, 1) of the sink.
struct SinkProbabilities {
  at::Tensor keys, sink;
};
// Returns the masked softmax of x (B, h, Tq, Tk) with the sinks (h), of the type of x, by LibTorch operations. In a
// fully masked row, the probability of the sink is 1.
SinkProbabilities sink_softmax_by_tensor_ops(const at::Tensor& x, const at::Tensor& attention_mask,
                                             const at::Tensor& sinks);

// `LogitFunction`: a type with the static members
//   kRowKernel     the row kernel that computes p from a
//   kIsIdentity    whether f(a) = a; if so, apply() and derivative() are not needed
//   apply(a)       f(a), elementwise
//   derivative(a)  f'(a), elementwise
template <class LogitFunction>
struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax<LogitFunction>> {
  static at::Tensor transform(const at::Tensor& a) {
    if constexpr (LogitFunction::kIsIdentity) return a;
    else return LogitFunction::apply(a);
  }

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const std::optional<at::Tensor>& optional_mask,
                            const std::optional<at::Tensor>& optional_sinks, bool in_place) {
    const at::Tensor attention_mask = optional_mask.value_or(at::Tensor());
    at::Tensor a = logits.contiguous(), p, sink_probability;
    if (optional_sinks) {
      const auto [key_probabilities, probability] =
          sink_softmax_by_tensor_ops(transform(a), attention_mask, optional_sinks->to(a.scalar_type()));
      p = key_probabilities, sink_probability = probability;
    } else if (has_row_kernel(a)) {
      p = in_place ? a.tensor_data() : at::empty_like(a);
      softmax_rows(LogitFunction::kRowKernel, a, attention_mask, p);
    } else {
      p = softmax_by_tensor_ops(transform(a), attention_mask);
    }
    context->save_for_backward({p, LogitFunction::kIsIdentity ? at::Tensor() : a, sink_probability});
    return p;
  }

  // `gradients` is a reference because a copy would hold another reference to the storage, which can_reuse_storage()
  // counts.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &a = saved[1], &sink_probability = saved[2];
    at::Tensor dsinks;
    if (sink_probability.defined()) dsinks = -(sink_probability * (p * gradients[0]).sum(-1, true)).sum({0, 2, 3});
    if (!has_row_kernel(p)) {
      at::Tensor da = at::_softmax_backward_data(gradients[0], p, -1, p.scalar_type());
      if constexpr (!LogitFunction::kIsIdentity) da = da * LogitFunction::derivative(a);
      return {da, {}, dsinks, {}};
    }
    const bool can_overwrite = can_reuse_storage(gradients[0]) && gradients[0].is_contiguous();
    const at::Tensor dp = gradients[0].contiguous(), da = can_overwrite ? dp : at::empty_like(p);
    softmax_rows_backward(LogitFunction::kRowKernel, a, p, dp, da);
    return {da, {}, dsinks, {}};
  }
};

// Returns the masked softmax of the transformed logits, as masked_softmax() does for f(a) = a. `in_place`: whether
// contiguous fp32 logits on a CPU are overwritten by the result, unless there are sinks.
template <class LogitFunction>
at::Tensor masked_softmax_of(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks,
                             bool in_place = false) {
  std::optional<at::Tensor> optional_mask, optional_sinks;
  if (attention_mask.defined()) optional_mask = attention_mask;
  if (sinks.defined()) optional_sinks = sinks;
  return MaskedSoftmax<LogitFunction>::apply(logits, optional_mask, optional_sinks, in_place);
}

}  // namespace mh::attention
