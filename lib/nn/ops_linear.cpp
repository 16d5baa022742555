// Linear layers, which on a CPU use the oneDNN products of nn/product.h.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "nn/ops.h"
#include "nn/parameter.h"
#include "nn/product.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The product x [weights]ᵀ + bias. The backward pass concatenates the weights again, so that between the passes there
// is no copy of the weights of every layer.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights,
                            const std::optional<at::Tensor>& bias) {
    variable_list saved{x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["bias"] = bias.has_value();
    return product_nt(x, concatenate_rows(weights), bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &dy = gradients[0];
    const at::TensorList weights = at::TensorList(saved).slice(1);
    const size_t num_weights = weights.size();
    variable_list results(num_weights + 2);  // gradients of x, of each weight and of the bias
    if (context->needs_input_grad(0)) results[0] = product_nn(dy, concatenate_rows(weights));
    bool needs_weights = false;
    for (size_t i = 1; i <= num_weights; ++i) needs_weights = needs_weights || context->needs_input_grad(i);
    if (needs_weights) {
      const at::Tensor dweight = product_tn(dy, x);
      int64_t row = 0;
      for (size_t i = 0; i < num_weights; ++i) {
        if (context->needs_input_grad(i + 1)) results[i + 1] = dweight.narrow(0, row, weights[i].size(0));
        row += weights[i].size(0);
      }
    }
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(num_weights + 1))
      results[num_weights + 1] = dy.sum(0);
    return results;
  }
};

// Returns whether linear() uses the products of nn/product.h for a weight.
bool has_fast_product(const at::Tensor& weight) {
  return weight.device().is_cpu() && (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16);
}

// Returns x [weights]ᵀ + bias for weights with fast products.
at::Tensor fast_linear(const at::Tensor& x, at::TensorList weights, const at::Tensor& bias) {
  const auto type = weights[0].scalar_type();
  const at::Tensor input = x.to(type), b = bias.defined() ? bias.to(type) : bias;
  auto shape = input.sizes().vec();
  const at::Tensor rows = input.reshape({-1, shape.back()});
  shape.back() = 0;
  for (const at::Tensor& weight : weights) shape.back() += weight.size(0);
  return Linear::apply(rows, weights, b.defined() ? std::optional(b) : std::nullopt).view(shape);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (has_fast_product(weight)) return fast_linear(x, {weight}, bias);
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? bias.to(weight.scalar_type()) : bias);
}

at::Tensor linear(const at::Tensor& x, ParameterRefs weights, ParameterRefs biases, Activation fused_activation) {
  DecodingProducts* decoding_products = DecodingProducts::current();
  if (decoding_products == nullptr || c10::GradMode::is_enabled()) {
    std::vector<at::Tensor> values;
    for (const Parameter* weight : weights)
      if (weight != nullptr) values.push_back(weight->value());
    const at::Tensor bias = concatenate_values(biases);
    return activation(
        has_fast_product(values[0]) ? fast_linear(x, values, bias) : linear(x, concatenate_values(weights), bias),
        fused_activation);
  }
  const DecodingProducts::Weights& cached_weights = decoding_products->weights(weights, biases);
  if (cached_weights.exact_sizes.of_one_thread.empty())
    return activation(linear(x, cached_weights.weight, cached_weights.bias), fused_activation);
  auto shape = x.sizes().vec();
  const at::Tensor rows = x.to(cached_weights.weight.scalar_type()).reshape({-1, shape.back()});
  shape.back() = cached_weights.weight.size(0);
  return DecodingProducts::product(rows, cached_weights, fused_activation).view(shape);
}

}  // namespace mh::nn
