#include "attention/fused/autograd.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All tensors of a saved attention, in the order in which they are saved and restored.
template <class Saved>
auto tensors_of(Saved& s) {
  auto& [x, result] = s;
  return std::array{&x.q,
                    &x.k,
                    &x.v,
                    &x.matrix,
                    &result.out,
                    &result.lse,
                    &x.spec.key_lengths,
                    &x.spec.head_scales,
                    &x.spec.relative.u,
                    &x.spec.relative.v,
                    &x.spec.relative.r};
}

// An operand and its gradient.
struct Pair {
  const at::Tensor &operand, &gradient;
};
std::array<Pair, 8> pairs_of(const Operands& x, const OperandGradients& g) {
  const RelativePositions& p = x.spec.relative;
  return {{{x.q, g.q},
           {x.k, g.k},
           {x.v, g.v},
           {x.matrix, g.matrix},
           {x.spec.head_scales, g.head_scales},
           {p.u, g.u},
           {p.v, g.v_bias},
           {p.r, g.r}}};
}

constexpr const char* kSaved = "attention";

}  // namespace

void SavedAttention::save(AutogradContext& context) const {
  variable_list tensors;
  for (const at::Tensor* tensor : tensors_of(*this)) tensors.push_back(*tensor);
  context.save_for_backward(std::move(tensors));
  SavedAttention rest = *this;
  for (at::Tensor* tensor : tensors_of(rest)) tensor->reset();
  save_value(context, kSaved, std::move(rest));
}

SavedAttention SavedAttention::restore(AutogradContext& context) {
  auto saved = restore_value<SavedAttention>(context, kSaved);
  variable_list tensors = context.get_saved_variables();
  auto tensor = tensors.begin();
  for (at::Tensor* to : tensors_of(saved)) *to = std::move(*tensor++);
  return saved;
}

std::vector<at::Tensor> differentiable(const Operands& x) {
  std::vector<at::Tensor> inputs;
  const OperandGradients none;
  for (const auto& [operand, gradient] : pairs_of(x, none))
    if (operand.defined()) inputs.push_back(operand);
  return inputs;
}

variable_list in_order(const Operands& x, const OperandGradients& gradients) {
  variable_list all;
  for (const auto& [operand, gradient] : pairs_of(x, gradients))
    if (operand.defined()) all.push_back(gradient);
  return all;
}

bool needs_gradient(const Operands& x) {
  if (!c10::GradMode::is_enabled()) return false;
  const std::vector<at::Tensor> inputs = differentiable(x);
  return std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

}  // namespace mh::attention
