// Dropout of a sublayer's output, residual sum and norm, fused into one forward kernel and one backward kernel.
// Separate operations would read and write the activations three times. The RMS norm alone also has two kernels on a
// CPU, since LibTorch computes it there by six operations.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "ceil_div.h"
#include "cpu/rms_norm.h"
#include "cpu/sum_norm.h"
#include "cuda/cuda_api.h"
#include "nn/aten.h"
#include "nn/device.h"
#include "nn/element_type.h"
#include "nn/ops.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// Rows per work item of the CPU loops and per partial sum of the gradients of weight and bias. A constant, so that the
// order of additions does not depend on the number of threads.
constexpr int64_t kRowsPerItem = 64;

// The arguments of the fused kernels that are not tensors.
struct SumNormSettings {
  double epsilon = 0;
  NormType type = NormType::layer;
  std::optional<kernels::DropoutRange> dropout;
};

const float* const_data_or_null(const at::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }
float* mutable_data_or_null(const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

// The parameters of a call of the fused kernels. `params` points into `dropout`, so the object cannot be copied.
struct SumNormCall {
  kernels::SumNormParams params;
  std::optional<kernels::DropoutRange> dropout;
  SumNormCall(at::IntArrayRef sizes, const at::Tensor& weight, const at::Tensor& bias, const SumNormSettings& settings)
      : dropout(settings.dropout) {
    params.size = sizes.back(), params.epsilon = static_cast<float>(settings.epsilon), params.type = settings.type;
    params.weight = const_data_or_null(weight), params.bias = const_data_or_null(bias);
    if (!dropout) return;
    params.dropout = &dropout->params, params.dropout_offset = dropout->stream_offset;
    params.dropout_batch_stride = dropout->batch_stride;
    params.batch_row_size = c10::multiply_integers(sizes.slice(1)) / params.size;
  }
  SumNormCall(const SumNormCall&) = delete;
  SumNormCall& operator=(const SumNormCall&) = delete;
};

// Splits `num_rows` rows into work items and calls f(first row, number of rows, scratch memory) for each item, in
// parallel. The scratch memory has `scratch_floats` floats.
template <class F>
void for_each_work_item(int64_t num_rows, int64_t scratch_floats, const F& f) {
  at::parallel_for(0, ceil_div(num_rows, kRowsPerItem), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(scratch_floats));
    for (int64_t i = begin; i < end; ++i)
      f(i * kRowsPerItem, std::min(kRowsPerItem, num_rows - i * kRowsPerItem), scratch.data());
  });
}

// The result of compute_sum_norm(): `sum` and `norm` (…, size), and for the backward pass `rstd` (rows), which is 1 /
// √(variance + epsilon) for a layer norm and 1 / √(mean square + epsilon) for an RMS norm, and `mean` (rows) of a layer
// norm. Tensors that the caller does not need are undefined.
struct SumNormOutput {
  at::Tensor sum, norm, mean, rstd;
};

SumNormOutput compute_sum_norm(const SumNormCall& call, const at::Tensor& x, const at::Tensor& y, bool needs_sum,
                               bool needs_norm, bool needs_gradient) {
  const int64_t size = call.params.size, num_rows = x.numel() / size;
  SumNormOutput output;
  if (needs_norm) output.norm = at::empty_like(x);
  if (needs_sum) output.sum = at::empty_like(x);
  if (needs_norm && needs_gradient) output.rstd = at::empty({num_rows}, x.options());
  if (output.rstd.defined() && call.params.type == NormType::layer) output.mean = at::empty_like(output.rstd);
  kernels::SumNormTensors tensors;
  tensors.rows = num_rows, tensors.x = const_data_or_null(x), tensors.y = y.const_data_ptr();
  tensors.sum = mutable_data_or_null(output.sum), tensors.norm = mutable_data_or_null(output.norm),
  tensors.mean = mutable_data_or_null(output.mean), tensors.rstd = mutable_data_or_null(output.rstd);
  if (const Gpu gpu = gpu_of(x.device())) {
    check_cuda(gpu.kernels->sum_norm(*dtype_of(y.scalar_type()), call.params, tensors, gpu.stream));
    return output;
  }
  dispatch_element_type(y, [&](auto element) {
    for_each_work_item(num_rows, kernels::sum_norm_scratch_floats(call.params),
                       [&](int64_t first, int64_t count, float* scratch) {
                         kernels::sum_norm<decltype(element)>(call.params, tensors, first, count, scratch);
                       });
  });
  return output;
}

struct SumNormFunction : torch::autograd::Function<SumNormFunction> {
  // Returns {x + dropout(y)} without weight, {x + dropout(y), norm(x + dropout(y))} with a weight.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const SumNormSettings& settings) {
    context->set_materialize_grads(false);
    const at::Tensor w = weight.value_or(at::Tensor()), b = bias.value_or(at::Tensor());
    const SumNormCall call(x.sizes(), w, b, settings);
    const SumNormOutput output = compute_sum_norm(call, x, y, true, w.defined(), true);
    context->save_for_backward({w, b, w.defined() ? output.sum : at::Tensor(), output.mean, output.rstd});
    context->saved_data["epsilon"] = settings.epsilon;
    context->saved_data["norm_type"] = static_cast<int64_t>(settings.type);
    context->saved_data["type"] = static_cast<int64_t>(y.scalar_type());
    if (const auto& dropout = settings.dropout)
      context->saved_data["dropout"] = std::string(reinterpret_cast<const char*>(&*dropout), sizeof *dropout);
    if (!w.defined()) return {output.sum};
    return {output.sum, output.norm};
  }

  static variable_list backward(AutogradContext* context, variable_list grad_output) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &w = saved[0], &b = saved[1], &sum = saved[2], &mean = saved[3], &rstd = saved[4];
    SumNormSettings settings{context->saved_data["epsilon"].toDouble(),
                             static_cast<NormType>(context->saved_data["norm_type"].toInt()), std::nullopt};
    std::optional<kernels::DropoutRange>& dropout = settings.dropout;
    if (const auto it = context->saved_data.find("dropout"); it != context->saved_data.end())
      std::memcpy(&dropout.emplace(), it->second.toStringRef().data(), sizeof *dropout);
    const at::Tensor dsum = grad_output[0].defined() ? grad_output[0].contiguous() : at::Tensor();
    const at::Tensor dnorm =
        grad_output.size() > 1 && grad_output[1].defined() ? grad_output[1].contiguous() : at::Tensor();
    if (!dsum.defined() && !dnorm.defined()) return {{}, {}, {}, {}, {}};
    const at::Tensor& template_gradient = dsum.defined() ? dsum : dnorm;
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const bool shares_gradient = type == at::kFloat && !dropout;  // dy equals dx: one tensor for both
    if (!dnorm.defined() && !dropout) return {dsum, dsum.to(type), {}, {}, {}};
    const int64_t size = template_gradient.size(-1), num_rows = template_gradient.numel() / size,
                  num_items = ceil_div(num_rows, kRowsPerItem);
    const SumNormCall call(template_gradient.sizes(), w, b, settings);
    const at::Tensor dx = at::empty_like(template_gradient),
                     dy = shares_gradient ? dx : at::empty_like(template_gradient, type);
    const at::Tensor partial_gradients =
        dnorm.defined() ? at::zeros({b.defined() ? 2 : 1, num_items, size}, template_gradient.options()) : at::Tensor();
    const auto input_gradients = [&]() -> variable_list {
      if (!dnorm.defined()) return {dx, dy, {}, {}, {}};
      const at::Tensor sums = partial_gradients.sum(1);
      return {dx, dy, sums[0], b.defined() ? sums[1] : at::Tensor(), {}};
    };
    kernels::SumNormTensors tensors;
    tensors.rows = num_rows, tensors.chunk_rows = kRowsPerItem;
    tensors.sum = const_cast<float*>(const_data_or_null(sum)), tensors.mean = mutable_data_or_null(mean),
    tensors.rstd = mutable_data_or_null(rstd);
    tensors.dsum = const_data_or_null(dsum), tensors.dnorm = const_data_or_null(dnorm),
    tensors.dx = mutable_data_or_null(dx), tensors.dy = dy.mutable_data_ptr();
    tensors.dweight = mutable_data_or_null(partial_gradients);
    if (dnorm.defined() && b.defined()) tensors.dbias = tensors.dweight + num_items * size;
    if (const Gpu gpu = gpu_of(template_gradient.device())) {
      if (shares_gradient) tensors.dy = nullptr;
      check_cuda(gpu.kernels->sum_norm_backward(*dtype_of(type), call.params, tensors, gpu.stream));
      return input_gradients();
    }
    dispatch_element_type(dy, [&](auto element) {
      for_each_work_item(num_rows, kernels::sum_norm_scratch_floats(call.params),
                         [&](int64_t first, int64_t count, float* scratch) {
                           kernels::sum_norm_backward<decltype(element)>(call.params, tensors, first, count, scratch);
                         });
    });
    return input_gradients();
  }
};

// Returns whether `weight` is a contiguous fp32 vector with an element for each column of x.
bool is_row_vector(const at::Tensor& weight, const at::Tensor& x) {
  return weight.scalar_type() == at::kFloat && weight.is_contiguous() && weight.numel() == x.size(-1);
}

bool needs_gradient(const at::Tensor& t) { return c10::GradMode::is_enabled() && t.defined() && t.requires_grad(); }

// Returns whether the fused kernels support the types and sizes of these tensors.
bool has_fused_kernel(const at::Tensor& x, const at::Tensor& y, const NormArguments& norm) {
  const bool is_on_gpu = static_cast<bool>(gpu_of(x.device()));
  const bool is_supported_type =
      y.scalar_type() == at::kFloat || y.scalar_type() == at::kBFloat16 || (is_on_gpu && y.scalar_type() == at::kHalf);
  return (x.is_cpu() || is_on_gpu) && (!is_on_gpu || x.size(-1) <= kernels::kMaxSumNormWidth) &&
         x.scalar_type() == at::kFloat && is_supported_type && x.sizes().equals(y.sizes()) && x.numel() > 0 &&
         (!norm.weight.defined() || is_row_vector(norm.weight, x)) &&
         (!norm.bias.defined() || is_row_vector(norm.bias, x));
}

SumAndNorm sum_and_norm(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments,
                        const NormArguments& norm, bool needs_sum) {
  const at::Tensor &weight = norm.weight, &bias = norm.bias;
  if (!has_fused_kernel(x, y, norm)) {
    const at::Tensor sum = x + dropout(y, dropout_arguments.p, dropout_arguments.forward_context,
                                       dropout_arguments.stream_name, dropout_arguments.site);
    return {sum, weight.defined() ? apply_norm(sum, norm) : at::Tensor()};
  }
  const at::Tensor x_contiguous = x.contiguous(), y_contiguous = y.contiguous();
  SumNormSettings settings{norm.epsilon, norm.type, std::nullopt};
  if (dropout_arguments.forward_context.training && dropout_arguments.p > 0)
    settings.dropout = dropout_range_of(y.sizes(), dropout_arguments.p, dropout_arguments.forward_context,
                                        dropout_arguments.stream_name, dropout_arguments.site);
  if (!(needs_gradient(x) || needs_gradient(y) || needs_gradient(weight) || needs_gradient(bias))) {
    const SumNormOutput output = compute_sum_norm(SumNormCall(x.sizes(), weight, bias, settings), x_contiguous,
                                                  y_contiguous, needs_sum, weight.defined(), false);
    return {output.sum, output.norm};
  }
  const auto as_optional = [](const at::Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; };
  const variable_list outputs =
      SumNormFunction::apply(x_contiguous, y_contiguous, as_optional(weight), as_optional(bias), settings);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : at::Tensor()};
}

// The RMS norm of a tensor, and its `rstd` (rows) for the backward pass; undefined `rstd`: not needed.
struct RmsNormOutput {
  at::Tensor norm, rstd;
};

// Returns the RMS norm of x, a contiguous CPU tensor in fp32 or bf16.
RmsNormOutput compute_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, bool needs_rstd) {
  const kernels::RmsNormParams params{x.size(-1), weight.const_data_ptr<float>(), static_cast<float>(epsilon)};
  const int64_t num_rows = x.numel() / params.size;
  RmsNormOutput output{at::empty_like(x), {}};
  if (needs_rstd) output.rstd = at::empty({num_rows}, weight.options());
  float* rstd = mutable_data_or_null(output.rstd);
  dispatch_element_type(x, [&](auto element) {
    using T = decltype(element);
    const T* input = static_cast<const T*>(x.const_data_ptr());
    T* norm = static_cast<T*>(output.norm.mutable_data_ptr());
    for_each_work_item(num_rows, 0, [&](int64_t first, int64_t count, float*) {
      kernels::rms_norm(params, input + first * params.size, norm + first * params.size,
                        rstd != nullptr ? rstd + first : nullptr, count);
    });
  });
  return output;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    const RmsNormOutput output = compute_rms_norm(x, weight, epsilon, true);
    context->save_for_backward({x, weight, output.rstd});
    return output.norm;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2], dy = gradients[0].contiguous();
    const kernels::RmsNormParams params{x.size(-1), weight.const_data_ptr<float>()};
    const int64_t size = params.size, num_rows = x.numel() / size;
    at::Tensor dx = at::empty_like(x),
               partial_dweights = at::zeros({ceil_div(num_rows, kRowsPerItem), size}, weight.options());
    const float* inv_rms = rstd.const_data_ptr<float>();
    float* dweight = partial_dweights.mutable_data_ptr<float>();
    dispatch_element_type(x, [&](auto element) {
      using T = decltype(element);
      const T *input = static_cast<const T*>(x.const_data_ptr()), *dnorm = static_cast<const T*>(dy.const_data_ptr());
      T* dinput = static_cast<T*>(dx.mutable_data_ptr());
      for_each_work_item(num_rows, 0, [&](int64_t first, int64_t count, float*) {
        kernels::rms_norm_backward(params, input + first * size, inv_rms + first, dnorm + first * size,
                                   dinput + first * size, dweight + first / kRowsPerItem * size, count);
      });
    });
    return {dx, partial_dweights.sum(0), {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  if (x.device().is_cpu() || x.scalar_type() == weight.scalar_type())
    return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
  return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, epsilon).to(x.scalar_type());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (has_cpu_kernel(x) && x.numel() > 0 && is_row_vector(weight, x)) {
    if (!needs_gradient(x) && !needs_gradient(weight))
      return compute_rms_norm(x.contiguous(), weight, epsilon, false).norm;
    return RmsNorm::apply(x.contiguous(), weight, epsilon);
  }
  if (x.scalar_type() == weight.scalar_type()) return at::rms_norm(x, weight.sizes(), weight, epsilon);
  return at::rms_norm(x.to(weight.scalar_type()), weight.sizes(), weight, epsilon).to(x.scalar_type());
}

at::Tensor apply_norm(const at::Tensor& x, const NormArguments& norm_arguments) {
  const auto& [weight, bias, epsilon, type] = norm_arguments;
  return type == NormType::rms ? rms_norm(x, weight, epsilon) : layer_norm(x, weight, bias, epsilon);
}

at::Tensor add(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments) {
  return sum_and_norm(x, y, dropout_arguments, {}, true).sum;
}

SumAndNorm add_and_norm(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments,
                        const NormArguments& norm_arguments) {
  return sum_and_norm(x, y, dropout_arguments, norm_arguments, true);
}

at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments,
                       const NormArguments& norm_arguments) {
  return sum_and_norm(x, y, dropout_arguments, norm_arguments, false).norm;
}

}  // namespace mh::nn
