// Cross-entropy of a linear output layer, with logits computed in slices of rows, on a CPU and on a GPU.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "cpu/cross_entropy.h"
#include "cuda/cuda_api.h"
#include "nn/aten.h"
#include "nn/device.h"
#include "nn/element_type.h"
#include "nn/ops.h"
#include "nn/product.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the number of rows of a slice. A long slice needs fewer accumulations into the gradient of the weight; a
// short slice stays in the CPU's cache. On a CPU the time hardly changes between 8 and 32 million logits per slice
// (width 256, vocabularies of 8,000 and 33,278 entries); with 2 million logits the time is a third longer. A GPU needs
// more rows per slice to keep all multiprocessors busy.
int64_t rows_per_slice(int64_t vocabulary_size, bool is_on_gpu) {
  return is_on_gpu ? std::clamp<int64_t>((64 << 20) / vocabulary_size, 256, 8192)
                   : std::clamp<int64_t>((16 << 20) / vocabulary_size, 64, 1024);
}

// Losses and gradients of all slices. The gradients are derivatives of the sum of the smoothed losses of all rows;
// undefined if not needed.
struct LossesAndGradients {
  at::Tensor dhidden;      // (N, d): gradient of `hidden`, in its type
  at::Tensor dweight;      // (rows, d): gradient of the weight, fp32 or wider
  at::Tensor dbias;        // (rows): gradient of the bias, fp32 or wider
  at::Tensor losses;       // (N, 2) fp64, on the device of `hidden`: a kernels::CrossEntropyLoss per row
  int64_t num_scored = 0;  // number of rows whose target is not negative
};

struct NeedsGradient {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

struct CrossEntropyTargets {
  at::Tensor cpu_targets, device_targets;  // (N) contiguous int64, on the CPU and on the device of `hidden`
  int64_t vocabulary_size = 0;
  double label_smoothing = 0;
  LogitScaling scaling = {};
};

struct CrossEntropyInput {
  const at::Tensor &hidden, &weight, &bias;
  const CrossEntropyTargets& targets;
};

// Computes losses[i] for each row i of `logits` (n, vocabulary_size), with CPU loops for fp32 and bf16. If
// `needs_gradient` is set, replaces the logits by their gradient.
void compute_cpu_losses(at::Tensor& logits, const int64_t* targets, double label_smoothing, bool needs_gradient,
                        kernels::CrossEntropyLoss* losses) {
  kernels::CrossEntropyParams params{logits.size(1), static_cast<float>(label_smoothing), needs_gradient};
  const bool is_bf16 = logits.scalar_type() == at::kBFloat16;
  char* logit_data = static_cast<char*>(logits.data_ptr());
  int64_t row_bytes = params.vocabulary_size * static_cast<int64_t>(logits.element_size());
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* row = logit_data + i * row_bytes;
      if (targets[i] < 0) {
        losses[i] = {};
        if (needs_gradient) std::memset(row, 0, static_cast<size_t>(row_bytes));
      } else {
        losses[i] = is_bf16 ? cross_entropy_row(params, reinterpret_cast<uint16_t*>(row), targets[i])
                            : cross_entropy_row(params, reinterpret_cast<float*>(row), targets[i]);
      }
    }
  });
}

// Computes `losses` (n, 2), the nll and the smoothed loss of each row of `logits` (n, vocabulary_size), with a GPU
// kernel; `targets` (n) and `losses` are in GPU memory. If `needs_gradient` is set, replaces the logits by their
// gradient.
void compute_gpu_losses(const Gpu& gpu, at::Tensor& logits, const at::Tensor& targets, double label_smoothing,
                        bool needs_gradient, at::Tensor& losses) {
  check_cuda(gpu.kernels->cross_entropy(
      *dtype_of(logits.scalar_type()), {logits.size(1), static_cast<float>(label_smoothing), needs_gradient},
      logits.size(0), logits.mutable_data_ptr(), targets.const_data_ptr<int64_t>(),
      static_cast<kernels::CrossEntropyLoss*>(losses.mutable_data_ptr()), gpu.stream));
}

// Computes `losses` (n, 2), the nll and the smoothed loss of each row of `logits` (n, vocabulary_size), with LibTorch
// operations, for any type and device. If `needs_gradient` is set, replaces the logits by their gradient.
void compute_fallback_losses(at::Tensor& logits, const at::Tensor& targets, double label_smoothing, bool needs_gradient,
                             at::Tensor& losses) {
  const at::Tensor is_scored = targets.ge(0);
  at::Tensor upcast_logits = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  at::Tensor log_p = at::log_softmax(upcast_logits, 1), target_index = targets.clamp_min(0).unsqueeze(1);
  at::Tensor nll = log_p.gather(1, target_index).squeeze(1).neg() * is_scored;
  at::Tensor smoothed = nll * (1 - label_smoothing) - log_p.mean(1) * is_scored * label_smoothing;
  losses.copy_(at::stack({nll, smoothed}, 1));
  if (!needs_gradient) return;
  at::Tensor dlogits = log_p.exp_().sub_(label_smoothing / static_cast<double>(logits.size(1)));
  dlogits.scatter_add_(1, target_index, at::full_like(target_index, label_smoothing - 1, dlogits.options()));
  logits = dlogits.mul_(is_scored.unsqueeze(1)).to(logits.scalar_type());
}

// The logits of a slice, and the factors of their gradient.
struct ScaledLogits {
  at::Tensor logits;  // (n, vocabulary_size)
  at::Tensor slope;   // derivative of each logit with respect to the result of the product; undefined: `scale` for all
  double scale = 1;
  // Returns the gradient of the results of the product, in `type`, for the gradient `dlogits`, which it may overwrite.
  at::Tensor gradient(const at::Tensor& dlogits, at::ScalarType type) const {
    if (slope.defined()) return dlogits.mul_(slope).to(type);
    return scale == 1 ? dlogits : dlogits.mul_(scale).to(type);
  }
};

// Returns the logits for `products` (n, vocabulary_size), the results of the product, which it may overwrite. As in
// scale_logits(), scaled logits are fp32 or wider, so that they are not rounded a second time.
ScaledLogits scale_slice(const at::Tensor& products, const LogitScaling& scaling, bool needs_gradient) {
  if (scaling.is_identity()) return {products, {}, 1};
  const at::Tensor x = products.to(products.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (scaling.soft_cap == 0) return {x.mul_(scaling.scale), {}, scaling.scale};
  const at::Tensor ratio = x.mul_(scaling.scale / scaling.soft_cap).tanh_(), logits = ratio * scaling.soft_cap;
  if (!needs_gradient) return {logits, {}, scaling.scale};
  // The derivative of c tanh(s x / c) is s - s tanh(s x / c)².
  return {logits, ratio.square_().mul_(-scaling.scale).add_(scaling.scale), scaling.scale};
}

// Returns the sums (2) of `losses` (n, 2) over the rows. On a CPU the rows are added in order, so the result does not
// depend on the number of threads; on a GPU the order of LibTorch's reduction is fixed.
at::Tensor sum_of(const at::Tensor& losses) {
  if (!losses.is_cpu()) return losses.sum(0);
  at::Tensor sums = at::zeros({2}, losses.options());
  auto* sum = sums.mutable_data_ptr<double>();
  const auto* loss = losses.const_data_ptr<double>();
  for (int64_t i = 0; i < losses.size(0); ++i) sum[0] += loss[2 * i], sum[1] += loss[2 * i + 1];
  return sums;
}

LossesAndGradients compute_losses(const CrossEntropyInput& input, NeedsGradient needs_gradient) {
  const int64_t n = input.hidden.size(0), vocabulary_size = input.targets.vocabulary_size;
  const double label_smoothing = input.targets.label_smoothing;
  at::Tensor weight = input.weight.narrow(0, 0, vocabulary_size);
  at::Tensor bias = input.bias.defined() ? input.bias.narrow(0, 0, vocabulary_size) : input.bias;
  auto gradient_type = input.weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  LossesAndGradients result;
  if (needs_gradient.hidden) result.dhidden = at::empty_like(input.hidden, at::MemoryFormat::Contiguous);
  // The gradient of the weight is stored transposed, in the layout that product_tn() returns for vocabulary_size > d,
  // so that the gradient of a slice is added by a contiguous loop.
  if (needs_gradient.weight) {
    result.dweight =
        at::empty({input.weight.size(1), input.weight.size(0)}, input.weight.options().dtype(gradient_type)).t();
    if (n == 0) result.dweight.zero_();
    else result.dweight.narrow(0, vocabulary_size, input.weight.size(0) - vocabulary_size).zero_();
  }
  if (needs_gradient.bias) result.dbias = at::zeros(input.bias.sizes(), input.bias.options().dtype(gradient_type));

  const int64_t* targets = input.targets.cpu_targets.const_data_ptr<int64_t>();
  result.num_scored = count_scored(input.targets.cpu_targets, vocabulary_size);
  static_assert(sizeof(kernels::CrossEntropyLoss) == 2 * sizeof(double));
  result.losses = at::empty({n, 2}, input.hidden.options().dtype(at::kDouble));
  const Gpu gpu = gpu_of(input.hidden.device());
  const int64_t slice_size = rows_per_slice(vocabulary_size, static_cast<bool>(gpu));
  for (int64_t begin = 0; begin < n; begin += slice_size) {
    const int64_t num_rows = std::min(slice_size, n - begin);
    at::Tensor hidden = input.hidden.narrow(0, begin, num_rows);
    const ScaledLogits scaled_logits =
        scale_slice(product_nt(hidden, weight, bias), input.targets.scaling, needs_gradient.any());
    at::Tensor logits = scaled_logits.logits;
    at::Tensor losses = result.losses.narrow(0, begin, num_rows);
    const at::Tensor device_targets = input.targets.device_targets.narrow(0, begin, num_rows);
    if (gpu && dtype_of(logits.scalar_type())) {
      compute_gpu_losses(gpu, logits, device_targets, label_smoothing, needs_gradient.any(), losses);
    } else if (has_cpu_kernel(logits)) {
      compute_cpu_losses(logits, targets + begin, label_smoothing, needs_gradient.any(),
                         static_cast<kernels::CrossEntropyLoss*>(losses.mutable_data_ptr()));
    } else {
      compute_fallback_losses(logits, device_targets, label_smoothing, needs_gradient.any(), losses);
    }
    if (!needs_gradient.any()) continue;
    const at::Tensor dlogits =
        scaled_logits.gradient(logits, hidden.scalar_type());  // the logits are now their gradient
    if (needs_gradient.hidden) result.dhidden.narrow(0, begin, num_rows).copy_(product_nn(dlogits, weight));
    if (needs_gradient.weight) {
      at::Tensor dweight = result.dweight.narrow(0, 0, vocabulary_size), slice_dweight = product_tn(dlogits, hidden);
      if (begin == 0) dweight.copy_(slice_dweight);
      else dweight.add_(slice_dweight);
    }
    if (needs_gradient.bias) result.dbias.narrow(0, 0, vocabulary_size).add_(dlogits.sum(0, false, gradient_type));
  }
  return result;
}

struct SlicedCrossEntropy : torch::autograd::Function<SlicedCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& optional_bias, const CrossEntropyTargets& targets,
                            NeedsGradient needs_gradient, SlicedLoss* loss) {
    at::Tensor bias = optional_bias.value_or(at::Tensor());
    LossesAndGradients result = compute_losses({hidden, weight, bias, targets}, needs_gradient);
    const at::Tensor sums = sum_of(result.losses);
    loss->nll = sums[0];
    loss->num_scored = result.num_scored;
    // saved_data stores the gradients, which are intermediate results that backward() uses once; save_for_backward() is
    // only for inputs and outputs of the node.
    context->saved_data["hidden"] = result.dhidden;
    if (needs_gradient.weight)
      result.dweight = result.dweight.to(weight.scalar_type(), false, false, at::MemoryFormat::Contiguous);
    context->saved_data["weight"] = result.dweight;
    context->saved_data["bias"] = result.dbias;
    return sums[1].to(weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, false, /*copy=*/true);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& grad_output = gradients[0];
    // On a GPU the host does not read grad_output, since the host would have to wait for the GPU.
    const bool is_on_gpu = static_cast<bool>(gpu_of(grad_output.device()));
    const double factor = is_on_gpu ? 0 : grad_output.item<double>();
    auto take_gradient = [&](const char* name) {
      auto saved_gradient = context->saved_data.find(name);
      TORCH_CHECK(
          saved_gradient != context->saved_data.end(),
          "expected one backward pass through sliced_cross_entropy(), which frees the gradients; found a second "
          "backward pass; compute the loss again before each backward pass");
      at::Tensor gradient = saved_gradient->second.toTensor();
      context->saved_data.erase(saved_gradient);
      if (!gradient.defined()) return gradient;
      // grad_output has the shape (1) in this product, so that the product is computed in the wider type of the two
      // tensors: type promotion ignores tensors without dimensions.
      if (is_on_gpu) gradient.mul_(grad_output.view({1}));
      else if (factor != 1) gradient.mul_(factor);
      return gradient;
    };
    at::Tensor dhidden = take_gradient("hidden"), dweight = take_gradient("weight"), dbias = take_gradient("bias");
    return {dhidden, dweight, dbias, {}, {}, {}};
  }
};

// The converted arguments of sliced_cross_entropy(): `hidden` and `bias` in the type of the weight, the targets both on
// the CPU and on the device of `hidden`.
struct PreparedInputs {
  at::Tensor hidden, bias;
  CrossEntropyTargets targets;
  PreparedInputs(const at::Tensor& h, const at::Tensor& weight, const at::Tensor& b,
                 const CrossEntropyTargets& unconverted_targets)
      : hidden(h.to(weight.scalar_type())),
        bias(b.defined() ? b.to(weight.scalar_type()) : b),
        targets(unconverted_targets) {
    targets.cpu_targets = unconverted_targets.cpu_targets.to(at::kCPU, at::kLong).contiguous();
    if (!unconverted_targets.device_targets.defined())
      targets.device_targets = to_device(targets.cpu_targets, h.device());
  }
};

}  // namespace

at::Tensor scale_logits(const at::Tensor& x, const LogitScaling& scaling) {
  if (scaling.is_identity()) return x;
  const at::Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (scaling.soft_cap == 0) return wide * scaling.scale;
  return at::tanh(wide * (scaling.scale / scaling.soft_cap)) * scaling.soft_cap;
}

int64_t count_scored(const at::Tensor& targets, int64_t vocabulary_size) {
  const auto* begin = targets.const_data_ptr<int64_t>();
  const auto* end = begin + targets.numel();
  // The kernels write to the logit of each target without a bounds check, so each target must be below
  // `vocabulary_size`.
  if (begin != end)
    if (const int64_t max_target = *std::max_element(begin, end); max_target >= vocabulary_size)
      throw Error(Exit::failed, Problem{"targets of the cross-entropy",
                                        str("indices below ", vocabulary_size, ", the number of outputs of the model"),
                                        str(max_target), "use data with the vocabulary or the classes of the model"});
  return std::count_if(begin, end, [](int64_t target) { return target >= 0; });
}

SlicedLoss sliced_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& targets, int64_t vocabulary_size, double label_smoothing,
                                const CrossEntropyArguments& arguments) {
  const PreparedInputs inputs(hidden, weight, bias,
                              {.cpu_targets = targets,
                               .device_targets = arguments.device_targets,
                               .vocabulary_size = vocabulary_size,
                               .label_smoothing = label_smoothing,
                               .scaling = arguments.scaling});
  const auto requires_gradient = [](const at::Tensor& t) {
    return t.defined() && at::GradMode::is_enabled() && t.requires_grad();
  };
  SlicedLoss loss;
  loss.smoothed = SlicedCrossEntropy::apply(
      inputs.hidden, weight, inputs.bias.defined() ? std::optional(inputs.bias) : std::nullopt, inputs.targets,
      NeedsGradient{requires_gradient(inputs.hidden), requires_gradient(weight), requires_gradient(inputs.bias)},
      &loss);
  return loss;
}

at::Tensor sliced_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& targets, int64_t vocabulary_size, const LogitScaling& scaling) {
  at::NoGradGuard no_gradient;
  const PreparedInputs inputs(
      hidden, weight, bias,
      {.cpu_targets = targets, .device_targets = {}, .vocabulary_size = vocabulary_size, .scaling = scaling});
  const LossesAndGradients result = compute_losses({inputs.hidden, weight, inputs.bias, inputs.targets}, {});
  return result.losses.select(1, 0).neg().to(at::kFloat);
}

}  // namespace mh::nn
