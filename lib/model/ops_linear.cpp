// Linear layers with all three products of forward and backward in oneDNN (see ops.h).
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/ops.h"
#include "model/product.h"

namespace mh::model {

namespace {

using OneDnnLinear = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                c10::string_view, c10::List<std::optional<at::Scalar>>,
                                std::optional<c10::string_view>);

// The operator of the tensor library that hands any strided matrices to oneDNN; none where it was built without.
const std::optional<c10::TypedOperatorHandle<OneDnnLinear>>& one_dnn() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<OneDnnLinear>> {
    auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!at::globalContext().hasMKLDNN() || !found) return std::nullopt;
    return found->typed<OneDnnLinear>();
  }();
  return handle;
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.defined();
    return product_nt(x, weight, bias);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = product_nt(dy, weight.t(), {});
    if (context->needs_input_grad(1)) dw = product_tn(dy, x);
    if (context->saved_data["bias"].toBool()) db = dy.sum(0);
    return {dx, dw, db};
  }
};

}  // namespace

at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool suits = x.is_cpu() && x.numel() > 0 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  if (!suits || !one_dnn()) return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
  return one_dnn()->call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, "none",
                         c10::List<std::optional<at::Scalar>>(), "");
}

at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b) {
  // In bf16 the library's own product is the faster one here; measured.
  if (a.is_cpu() && a.scalar_type() == at::kFloat && a.numel() > 0) return product_nt(a.t(), b.t(), {});
  return at::mm(a.t(), b);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  auto sizes = x.sizes().vec();
  at::Tensor flat = x.reshape({-1, sizes.back()});
  if (flat.scalar_type() != weight.scalar_type()) flat = flat.to(weight.scalar_type());
  at::Tensor b = bias.defined() && bias.scalar_type() != weight.scalar_type() ? bias.to(weight.scalar_type()) : bias;
  sizes.back() = weight.size(0);
  return Linear::apply(flat, weight, b).view(sizes);
}

}  // namespace mh::model
