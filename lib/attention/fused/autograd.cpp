// Saves and restores the tensors of a fused attention, and allocates its result and gradients.
#include "attention/fused/autograd.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

#include "attention/row_layout.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns pointers to all tensors of a SavedAttention, in the order in which save() and restore() handle them.
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
                    &x.spec.relative_positions.u,
                    &x.spec.relative_positions.v,
                    &x.spec.relative_positions.r,
                    &x.spec.sinks,
                    &x.spec.position_bias.bias};
}

// A tensor of Operands and its gradient.
struct OperandWithGradient {
  const at::Tensor &operand, &gradient;
};
std::array<OperandWithGradient, 10> operands_with_gradients(const Operands& x, const OperandGradients& g) {
  const RelativePositions& relative_positions = x.spec.relative_positions;
  return {{{x.q, g.q},
           {x.k, g.k},
           {x.v, g.v},
           {x.matrix, g.matrix},
           {x.spec.head_scales, g.head_scales},
           {relative_positions.u, g.u},
           {relative_positions.v, g.v_bias},
           {relative_positions.r, g.r},
           {x.spec.sinks, g.sinks},
           {x.spec.position_bias.bias, g.position_bias}}};
}

constexpr const char* kSavedKey = "attention";

// Returns the number of value heads, which are the heads of the result.
int64_t num_value_heads(const Operands& x) { return x.matrix.defined() ? x.matrix.size(-1) : x.q.size(1); }

}  // namespace

ForwardResult empty_result(const Operands& x) {
  const at::Tensor& q = x.q;
  return {allocate_by_position(q, num_value_heads(x), q.size(2), x.v.size(3)),
          at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
}

OperandGradients empty_gradients(const Operands& x, bool shares_storage) {
  const at::Tensor &q = x.q, &k = x.k, &v = x.v;
  const int64_t h = q.size(1), hv = num_value_heads(x), key_width = h * q.size(3), value_width = hv * v.size(3);
  if (!shares_storage || q.size(2) != k.size(2))
    return {allocate_by_position(q, h, q.size(2), q.size(3)), allocate_by_position(k, h, k.size(2), k.size(3)),
            allocate_by_position(v, hv, v.size(2), v.size(3))};
  const at::Tensor storage = at::empty({q.size(0), q.size(2), 2 * key_width + value_width}, q.options());
  const auto slice = [&](int64_t offset, int64_t num_heads, int64_t size) {
    return storage.narrow(2, offset, num_heads * size).unflatten(2, {num_heads, size}).transpose(1, 2);
  };
  return {slice(0, h, q.size(3)), slice(key_width, h, q.size(3)), slice(2 * key_width, hv, v.size(3))};
}

void SavedAttention::save(AutogradContext& context) const {
  variable_list tensors;
  for (const at::Tensor* tensor : tensors_of(*this)) tensors.push_back(*tensor);
  context.save_for_backward(std::move(tensors));
  SavedAttention metadata = *this;
  for (at::Tensor* tensor : tensors_of(metadata)) tensor->reset();
  save_value(context, kSavedKey, std::move(metadata));
}

SavedAttention SavedAttention::restore(AutogradContext& context) {
  auto saved = restore_value<SavedAttention>(context, kSavedKey);
  variable_list tensors = context.get_saved_variables();
  auto tensor = tensors.begin();
  for (at::Tensor* destination : tensors_of(saved)) *destination = std::move(*tensor++);
  return saved;
}

std::vector<at::Tensor> differentiable_inputs(const Operands& x) {
  std::vector<at::Tensor> inputs;
  const OperandGradients no_gradients;
  for (const auto& [operand, gradient] : operands_with_gradients(x, no_gradients))
    if (operand.defined()) inputs.push_back(operand);
  return inputs;
}

variable_list ordered_gradients(const Operands& x, const OperandGradients& gradients) {
  variable_list result;
  for (const auto& [operand, gradient] : operands_with_gradients(x, gradients))
    if (operand.defined()) result.push_back(gradient);
  return result;
}

bool needs_gradient(const Operands& x) {
  if (!c10::GradMode::is_enabled()) return false;
  const std::vector<at::Tensor> inputs = differentiable_inputs(x);
  return std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

}  // namespace mh::attention
