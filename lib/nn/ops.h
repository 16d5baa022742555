// The primitive operations of all models, with their gradients. Each operation has a single definition, so that it is
// optimised in one place. All operations support autograd unless stated otherwise. Activations are fp32, or bf16 if the
// weights are bf16 (Parameter::value()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "dropout_params.h"
#include "nn/forward_context.h"
#include "nn/product.h"
#include "sum_norm_params.h"

namespace mh::nn {

// Returns x weightᵀ + bias (…, out) for x (…, in), `weight` (out, in), and `bias` (out) or undefined. x and `bias` are
// cast to the type of `weight`, which is the type of the result. On a CPU, the fp32 and bf16 products of the forward
// and the backward pass use oneDNN. For fp32, LibTorch would use MKL, which reaches less than half the speed of oneDNN
// on processors of other vendors than Intel.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// Returns fused_activation(x weightᵀ + bias) (…, Σ out_i) for x (…, in). `weight` is the concatenation of the
// parameters `weights` (out_i, in), so that one product computes all outputs; `bias` is the concatenation of `biases`
// (out_i), or no bias if `biases` is empty. While a DecodingProducts object (product.h) exists in this thread and
// gradients are disabled, the product reads the concatenation from the object's cache.
at::Tensor linear(const at::Tensor& x, ParameterRefs weights, ParameterRefs biases = {},
                  Activation fused_activation = Activation::none);

// Returns activation(gate) ∘ up (…, f) for x (…, 2 f) = [gate, up], the result of one product with the concatenated
// weights of both, such as linear(input, {gate, up}). With Activation::silu the function is the SwiGLU of Shazeer 2020
// ("GLU Variants Improve Transformer"). From the forward to the backward pass autograd keeps x alone. On a CPU, one
// kernel for each pass computes fp32 and bf16, in fp32.
at::Tensor gated_activation(const at::Tensor& x, Activation kind);

// Returns scale * weight[tokens] (B, T, d) in fp32, for `tokens` (B, T) int64 and `weight` (rows, d) in fp32, fp16 or
// bf16. Rows are converted after the lookup, so the bits equal a lookup in the weight converted to fp32.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale);

// Returns the layer norm of x (…, d), of any type, over the last axis, with `weight` and `bias` (d) fp32; undefined
// `bias`: no bias. The result has the type of x; means and variances are accumulated in fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);
// Returns the RMS norm of x (…, d), of any type, over the last axis, weight ∘ x / √(mean(x²) + epsilon), with `weight`
// (d) fp32. The result has the type of x; mean squares are accumulated in fp32.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

using kernels::NormType;
// The arguments of a norm over the last axis (d), apart from the tensor.
struct NormArguments {
  at::Tensor weight, bias;  // (d), fp32; undefined `bias`: no bias, as in every RMS norm
  double epsilon = 0;
  NormType type = NormType::layer;
};
// Returns layer_norm() or rms_norm() of x (…, d).
at::Tensor apply_norm(const at::Tensor& x, const NormArguments& norm_arguments);

// Returns x (B, …) with inverted dropout: an element is divided by 1 - p, or set to 0 with probability p. Returns x
// itself outside of training or if p = 0. Whether an element is dropped is a pure function of (seed, stream_name,
// update, site, index), with the seed and the update of `forward_context`. DropoutIndex defines the index of an
// element. The first row of x has the number forward_context.row_offset, so neither the number of threads, nor the
// number of rows of a micro-batch, nor the device changes the result. `stream_name` names the operation
// ("attention.output"); `site` distinguishes operations with the same name: the index of the layer, or of the band of
// the vocabulary (model/bands.h); 0 for a single operation. Throws Error(usage) for a tensor too large for
// DropoutIndex::position.
at::Tensor dropout(const at::Tensor& x, double p, const nn::ForwardContext& forward_context,
                   std::string_view stream_name, uint32_t site);
// Returns the parameters for a kernel that applies dropout itself. With them, the kernel drops the same elements of a
// tensor of these sizes as dropout(). Throws like dropout().
kernels::DropoutRange dropout_range_of(at::IntArrayRef sizes, double p, const nn::ForwardContext& forward_context,
                                       std::string_view stream_name, uint32_t site);

// The arguments of dropout() apart from the tensor. Holds references, so it must not outlive the call that receives it.
struct DropoutArguments {
  double p;
  const nn::ForwardContext& forward_context;
  std::string_view stream_name;
  uint32_t site;
};
// The residual sum of a sublayer and its norm, (B, …, d) each.
struct SumAndNorm {
  at::Tensor sum, norm;
};
// Residual connection of a sublayer with input x (B, …, d) and output y (B, …, d). add() returns the residual sum x +
// dropout(y), in the wider type of x and y; norm_of_sum() returns the norm of that sum; add_and_norm() returns both. A
// fused kernel computes sum and norm in one pass over memory if x is fp32 and y is fp32 or bf16, or on a GPU fp16;
// dropout scales the elements of y in fp32. For other types, or for d above the limit of the GPU kernel
// (kernels/cuda/sum_norm.h), the fallback calls dropout() and apply_norm(), which round the scaled elements to the type
// of y before the sum.
at::Tensor add(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments);
SumAndNorm add_and_norm(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments,
                        const NormArguments& norm_arguments);
at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const DropoutArguments& dropout_arguments,
                       const NormArguments& norm_arguments);

// The loss of a batch, from sliced_cross_entropy() or an output layer (model::OutputLayer::loss()). The unit is nats,
// except for regression, whose loss is the squared error.
struct SlicedLoss {
  at::Tensor smoothed;     // scalar fp32, differentiable: summed over scored rows, with label smoothing
  at::Tensor nll;          // scalar fp64: summed over scored rows, without label smoothing
  int64_t num_scored = 0;  // number of rows whose target is not negative
};

// The function of an output layer from the results x of its product to the logits: soft_cap tanh(scale x / soft_cap),
// whose absolute value is below soft_cap, or scale x if soft_cap is 0.
struct LogitScaling {
  double scale = 1;
  double soft_cap = 0;  // 0: no bound
  bool is_identity() const { return scale == 1 && soft_cap == 0; }
};
// Returns the logits for x, of the same shape. Unless the function is the identity, the result has the wider type of x
// and fp32.
at::Tensor scale_logits(const at::Tensor& x, const LogitScaling& scaling);

// The arguments of sliced_cross_entropy() that most callers leave out.
struct CrossEntropyArguments {
  LogitScaling scaling = {};
  at::Tensor device_targets = {};  // copy of the targets on the device of `hidden`; undefined: the call makes the copy
};
// Returns the cross-entropy of a linear output layer. The logits are computed in slices of rows, so that only the
// logits of one slice are in memory at a time; the pass over a slice also computes the gradients of `hidden`, `weight`
// and `bias` that autograd requires. hidden (N, d); weight (rows, d); bias (rows) or undefined; targets (N) int64,
// negative: not scored. Only the first `vocabulary_size` rows of `weight` and `bias` are used. As in PyTorch, the
// smoothed loss of a row is (1 - e) * nll + e / vocabulary_size * (sum of -log p(i) over all vocabulary entries i),
// with e = label_smoothing. If the targets are on the CPU, the call does not wait for a GPU.
SlicedLoss sliced_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& targets, int64_t vocabulary_size, double label_smoothing,
                                const CrossEntropyArguments& arguments = {});
// Returns the number of scored (non-negative) targets, for `targets` (N) int64 on the CPU. Throws Error(failed) if a
// target is `vocabulary_size` or more.
int64_t count_scored(const at::Tensor& targets, int64_t vocabulary_size);

// Returns log p(target) (N) fp32, nats, for the same arguments as sliced_cross_entropy(); 0 where the target is
// negative. Computes the logits in slices of rows. Without autograd.
at::Tensor sliced_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& targets, int64_t vocabulary_size,
                                    const LogitScaling& scaling = {});

// Sets process-wide options of LibTorch: the number of its threads (0: all cores), and exceptions for its failed
// checks. Each tool calls the function once, before it creates the first tensor.
void prepare_cpu(int num_threads);

}  // namespace mh::nn
