// The primitive operations of all models, with their gradients. Each has a single definition, so that it is optimised
// in one place. All support autograd; activations are fp32, or bf16 if the weights are bf16 (Parameter::value()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "dropout_plan.h"
#include "nn/forward_context.h"
#include "nn/product.h"

namespace mh::nn {

// Returns x weightᵀ + bias (…, out) in the type of the weight, for x (…, in), which is cast to that type, weight
// (out, in), and bias (out) or undefined. On a CPU all three products of forward and backward pass use oneDNN, in fp32
// too: MKL reaches less than half of its speed on processors that are not Intel's.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// The same for parameters, followed by an activation. Several weights are concatenated along their outputs for a single
// product, and so are their biases, if any. While a DecodingProducts object exists, uses the weights that it caches.
at::Tensor linear(const at::Tensor& x, Parts weights, Parts biases = {},
                  Activation fused_activation = Activation::none);

// Returns scale * weight[tokens] (B, T, d) in fp32, for tokens (B, T) int64 and weight (rows, d).
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale);

// Layer norm of the last axis of x, of any type, with weight and bias (d) fp32. The result has the type of x; sums are
// in fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

// Inverted dropout of x (B, …): kept elements are divided by 1 - p. The decision for an element is a pure function of
// (step.seed, stream, step.update, site, index), where index = (step.row_offset + b) * x[0].numel() + offset within the
// row is the index of the element within the whole batch of the update. So neither threads, micro-batches nor devices
// change it. It is the identity outside of training or if p = 0. `stream` names the operation ("attention.output"),
// `site` is the number of the layer.
at::Tensor dropout(const at::Tensor& x, double p, const nn::ForwardContext& step, std::string_view stream,
                   uint32_t site);
// Returns the decisions of dropout(), for a kernel that drops elements itself; `row`: number of elements of x[0].
kernels::DropoutFrom dropout_from(int64_t row, double p, const nn::ForwardContext& step, std::string_view stream,
                                  uint32_t site);

// The arguments of dropout(). It holds references, so it must not outlive the call.
struct Dropping {
  double p;
  const nn::ForwardContext& step;
  std::string_view stream;
  uint32_t site;
};
// Residual connection of a sublayer with input x (B, …, d) and output y of the same size: the sum x + dropout(y), in
// the wider of their types, and its layer norm with weight and bias (d) fp32. add() returns the sum, norm_of_sum() the
// norm, add_and_norm() both. One fused pass takes x in fp32 and y in fp32 or bf16, on a GPU also fp16, and scales the
// kept elements of y in fp32. For other types, or d above the limit of the GPU kernel (kernels/cuda/sum_norm.h), the
// fallback is the operations above, which round the scaled elements to the type of y first.
at::Tensor add(const at::Tensor& x, const at::Tensor& y, const Dropping& drop);
struct SumAndNorm {
  at::Tensor sum, norm;
};
SumAndNorm add_and_norm(const at::Tensor& x, const at::Tensor& y, const Dropping& drop, const at::Tensor& weight,
                        const at::Tensor& bias, double epsilon);
at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const Dropping& drop, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon);

// Cross-entropy of a linear output layer that never stores more than a slice of the logits. For each slice of rows it
// computes the logits, their log-sum-exp and, if requested, the gradients of hidden and weight at once. hidden (N, d);
// weight (rows, d) and bias (rows) or undefined, of which the first `vocabulary` rows are used; targets (N) int64,
// negative: not scored. Label smoothing e as in fairseq: (1 - e) * nll + e / vocabulary * (sum of the nll of all
// entries). If the targets are on the CPU, nothing waits for a GPU.
struct SlicedLoss {
  at::Tensor smoothed;  // scalar fp32, differentiable: nats summed over scored rows, with label smoothing
  at::Tensor nll;       // scalar fp64: the same sum without label smoothing; reading either waits for a GPU
  int64_t scored = 0;
};
// `on_device`: the targets on the device of hidden; undefined: they are copied to it.
SlicedLoss sliced_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& targets, int64_t vocabulary, double label_smoothing,
                                const at::Tensor& on_device = {});
// Returns the number of scored targets (int64, on the CPU). Throws Error(failed) for a target outside of the
// vocabulary.
int64_t count_scored(const at::Tensor& targets, int64_t vocabulary);

// Returns log p(target) (N) fp32, nats; 0 where the target is negative. Works in the same slices, without a gradient.
at::Tensor sliced_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& targets, int64_t vocabulary);

// Sets options of the process that make large tensors cheap on a CPU (allocator thresholds, number of threads). A tool
// calls it once, before the first tensor. threads = 0: all cores.
void prepare_cpu(int threads);

}  // namespace mh::nn
