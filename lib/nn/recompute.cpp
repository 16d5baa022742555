#include "nn/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/custom_class.h>

#include <unordered_set>

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Returns the inputs without their history. Each copy requires a gradient if its original does.
variable_list detach(const variable_list& inputs) {
  variable_list copies;
  for (const at::Tensor& x : inputs) copies.push_back(x.detach().set_requires_grad(x.requires_grad()));
  return copies;
}

// Returns the leaf tensors of the graph of `output` that require a gradient, except `excluded`, in the order in which a
// depth-first search finds them.
variable_list leaves_of(const at::Tensor& output, const variable_list& excluded) {
  variable_list leaves;
  std::unordered_set<const Node*> visited_nodes;
  std::vector<Node*> pending_nodes{output.grad_fn().get()};
  while (!pending_nodes.empty()) {
    Node* node = pending_nodes.back();
    pending_nodes.pop_back();
    if (node == nullptr || !visited_nodes.insert(node).second) continue;
    if (const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      const at::Tensor& leaf = accumulator->variable;
      const bool is_excluded =
          std::any_of(excluded.begin(), excluded.end(), [&](const at::Tensor& x) { return x.is_same(leaf); });
      if (!is_excluded) leaves.push_back(leaf);
    }
    for (const auto& edge : node->next_edges()) pending_nodes.push_back(edge.function.get());
  }
  return leaves;
}

struct FunctionHolder : torch::CustomClassHolder {
  explicit FunctionHolder(RecomputedFunction f) : function(std::move(f)) {}
  const RecomputedFunction function;
};

// The autograd function of `output` = function(inputs). Its differentiable arguments are the inputs, followed by the
// leaves that the function reads. Since the leaves are arguments, their gradients pass through the surrounding graph as
// without recomputation: hooks run once, after all uses of a leaf.
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs_and_leaves, int64_t num_inputs,
                            const at::Tensor& output, const RecomputedFunction& function) {
    context->save_for_backward(inputs_and_leaves.vec());
    context->saved_data["num_inputs"] = num_inputs;
    context->saved_data["function"] = at::IValue::make_capsule(c10::make_intrusive<FunctionHolder>(function));
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const at::AutoGradMode with_gradients(true);
    const auto holder =
        c10::static_intrusive_pointer_cast<FunctionHolder>(context->saved_data.at("function").toCapsule());
    variable_list arguments = context->get_saved_variables();
    const auto num_inputs = context->saved_data.at("num_inputs").toInt();
    const variable_list copies = detach({arguments.begin(), arguments.begin() + num_inputs});
    const at::Tensor output = holder->function(copies, true);
    std::copy(copies.begin(), copies.end(), arguments.begin());
    variable_list differentiable;
    for (const at::Tensor& x : arguments)
      if (x.requires_grad()) differentiable.push_back(x);
    const variable_list computed_gradients =
        torch::autograd::grad({output}, differentiable, output_gradients, std::nullopt, false, true);
    variable_list gradients;
    auto next = computed_gradients.begin();
    for (const at::Tensor& x : arguments) gradients.push_back(x.requires_grad() ? *next++ : at::Tensor());
    gradients.resize(gradients.size() + 3);  // undefined gradients of the other arguments of forward()
    return gradients;
  }
};

}  // namespace

at::Tensor recompute(const std::vector<at::Tensor>& inputs, const RecomputedFunction& function) {
  if (!at::GradMode::is_enabled()) return function(inputs, false);
  // The forward pass also runs with gradients, so that it selects the same kernels as without recomputation. Its graph
  // shows which leaves the function reads, and is deleted at the end of this call.
  const variable_list copies = detach(inputs);
  const at::Tensor output = function(copies, false);
  if (!output.requires_grad()) return output;
  variable_list arguments = inputs;
  for (const at::Tensor& leaf : leaves_of(output, copies)) arguments.push_back(leaf);
  at::TensorList argument_list = arguments;
  return Recompute::apply(argument_list, static_cast<int64_t>(inputs.size()), output.detach(), function);
}

}  // namespace mh::nn
