// Linear layers, which on a CPU use the oneDNN products of nn/product.h.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/ops.h"
#include "nn/product.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.has_value();
    return product_nt(x, weight, bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = product_nn(dy, weight);
    if (context->needs_input_grad(1)) dweight = product_tn(dy, x);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor input = x.to(weight.scalar_type());
  at::Tensor b = bias.defined() ? bias.to(weight.scalar_type()) : bias;
  bool has_fast_type = weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16;
  if (!has_fast_type || !weight.device().is_cpu()) return at::linear(input, weight, b);
  auto shape = input.sizes().vec();
  at::Tensor rows = input.reshape({-1, shape.back()});
  shape.back() = weight.size(0);
  return Linear::apply(rows, weight, b.defined() ? std::optional(b) : std::nullopt).view(shape);
}

at::Tensor linear(const at::Tensor& x, ParameterRefs weights, ParameterRefs biases, Activation fused_activation) {
  DecodingProducts* decoding_products = DecodingProducts::current();
  if (decoding_products == nullptr || c10::GradMode::is_enabled())
    return activation(linear(x, concatenate_values(weights), concatenate_values(biases)), fused_activation);
  const DecodingProducts::Weights& cached_weights = decoding_products->weights(weights, biases);
  if (!cached_weights.is_packed())
    return activation(linear(x, cached_weights.weight, cached_weights.bias), fused_activation);
  auto shape = x.sizes().vec();
  const at::Tensor rows = x.to(cached_weights.weight.scalar_type()).reshape({-1, shape.back()});
  shape.back() = cached_weights.weight.size(0);
  return DecodingProducts::product(rows, cached_weights, fused_activation).view(shape);
}

}  // namespace mh::nn
