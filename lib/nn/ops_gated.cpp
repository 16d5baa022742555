// Gated activations, with one CPU kernel for each pass and tensor operations for other devices and types.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ceil_div.h"
#include "cpu/gated_activation.h"
#include "nn/aten.h"
#include "nn/element_type.h"
#include "nn/ops.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool uses_cpu_kernel(const at::Tensor& x) { return has_cpu_kernel(x) && x.numel() > 0; }

// Calls f(row, first element, number of elements) for work items of a tensor (num_rows, size), in parallel. A work item
// is a range of a row with at most 16384 elements, a few microseconds of work.
template <class F>
void for_each_row_range(int64_t num_rows, int64_t size, const F& f) {
  constexpr int64_t elements_per_item = 16384;
  const int64_t items_per_row = ceil_div(size, elements_per_item), item_size = std::min(size, elements_per_item);
  at::parallel_for(0, num_rows * items_per_row, elements_per_item / item_size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % items_per_row * item_size;
      f(i / items_per_row, first, std::min(item_size, size - first));
    }
  });
}

// Returns dy ∘ activation'(x), the gradient of x.
at::Tensor activation_gradient(const at::Tensor& dy, const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::none:
      return dy;
    case Activation::relu:
      return at::threshold_backward(dy, x, 0);
    case Activation::silu:
      return at::silu_backward(dy, x);
    case Activation::gelu:
    case Activation::gelu_tanh:
      break;
  }
  return at::gelu_backward(dy, x, kind == Activation::gelu_tanh ? "tanh" : "none");
}

struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Activation kind) {
    context->save_for_backward({x});
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    const int64_t size = x.size(-1) / 2;
    if (!uses_cpu_kernel(x)) return activation(x.narrow(-1, 0, size), kind) * x.narrow(-1, size, size);
    auto shape = x.sizes().vec();
    shape.back() = size;
    at::Tensor y = at::empty(shape, x.options());
    dispatch_element_type(x, [&](auto element) {
      using T = decltype(element);
      const T* gate = static_cast<const T*>(x.const_data_ptr());
      T* result = static_cast<T*>(y.mutable_data_ptr());
      for_each_row_range(y.numel() / size, size, [&](int64_t row, int64_t first, int64_t count) {
        const int64_t offset = row * 2 * size + first;
        kernels::gated_activation(kind, gate + offset, gate + offset + size, result + row * size + first, count);
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0], dy = gradients[0].contiguous();
    const auto kind = static_cast<Activation>(context->saved_data["kind"].toInt());
    const int64_t size = x.size(-1) / 2;
    if (!uses_cpu_kernel(x)) {
      const at::Tensor gate = x.narrow(-1, 0, size), up = x.narrow(-1, size, size);
      return {nn::cat({activation_gradient(dy * up, gate, kind), dy * activation(gate, kind)}, -1), {}};
    }
    at::Tensor dx = at::empty_like(x);
    dispatch_element_type(x, [&](auto element) {
      using T = decltype(element);
      const T *gate = static_cast<const T*>(x.const_data_ptr()), *dresult = static_cast<const T*>(dy.const_data_ptr());
      T* dgate = static_cast<T*>(dx.mutable_data_ptr());
      for_each_row_range(dy.numel() / size, size, [&](int64_t row, int64_t first, int64_t count) {
        const int64_t offset = row * 2 * size + first;
        kernels::gated_activation_backward(kind, gate + offset, gate + offset + size, dresult + row * size + first,
                                           dgate + offset, dgate + offset + size, count);
      });
    });
    return {dx, {}};
  }
};

}  // namespace

at::Tensor gated_activation(const at::Tensor& x, Activation kind) {
  return GatedActivation::apply(x.contiguous(), kind);
}

}  // namespace mh::nn
