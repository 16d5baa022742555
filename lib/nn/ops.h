// The primitive operations of every model, each with its gradient: one definition, so that speed work has one place.
// All follow autograd; activations are fp32, or bf16 when the weights given are bf16 (see Parameter::value()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "dropout_plan.h"
#include "nn/forward_context.h"
#include "nn/product.h"

namespace mh::nn {

// x (…, in), weight (out, in), bias (out) or undefined -> (…, out), in the weight's type: x is cast to it first.
// On a CPU all three products of forward and backward go to oneDNN in fp32 too: with MKL they reach less than half of
// its speed on processors that are not Intel's.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// The same by parameters: several weights, one below another, make one product, and so do their biases, if any. While
// DecodingProducts live it uses the weights that they keep.
at::Tensor linear(const at::Tensor& x, Parts weights, Parts biases = {}, Activation then = Activation::none);

// tokens (B, T) int64, weight (rows, d) -> (B, T, d) = scale * weight[tokens], in fp32.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale);

// Normalises the last axis. x any type, weight and bias (d) fp32; the result has x's type, sums are taken in fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

// Inverted dropout of x (B, …): kept values are divided by 1 - p. The decision for an element is a pure function of
// (step.seed, stream, step.update, site, element index within the update's whole batch), the index being
// (step.row_offset + b) * x[0].numel() + offset within the row, so neither threads, micro-batches nor devices change
// it. Identity when not training or p = 0. `stream` names the place ("attention.output"), `site` is the layer's number.
at::Tensor dropout(const at::Tensor& x, double p, const nn::ForwardContext& step, std::string_view stream,
                   uint32_t site);
// The decisions of dropout(), for a kernel that drops by itself; `row`: elements of x[0].
kernels::DropoutFrom dropout_from(int64_t row, double p, const nn::ForwardContext& step, std::string_view stream,
                                  uint32_t site);

// The arguments of dropout(), for the length of a call.
struct Dropping {
  double p;
  const nn::ForwardContext& step;
  std::string_view stream;
  uint32_t site;
};
// The residual sum of a sublayer with input x (B, …, d) and output y of the same size, x + dropout(y) in the wider of
// their types, and its layer norm by weight and bias (d) fp32. One pass serves x in fp32 and y in fp32 or bf16, on a
// GPU in fp16 too, and scales the kept elements of y in fp32. Other types, or a d above the limit of a GPU's kernel
// (kernels/cuda/sum_norm.h), take the operations above, which round the scaled elements to y's type first.
at::Tensor add(const at::Tensor& x, const at::Tensor& y, const Dropping& drop);
struct SumAndNorm {
  at::Tensor sum, norm;
};
SumAndNorm add_and_norm(const at::Tensor& x, const at::Tensor& y, const Dropping& drop, const at::Tensor& weight,
                        const at::Tensor& bias, double epsilon);
at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const Dropping& drop, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon);

// Cross-entropy of a linear output layer that never holds more than a slice of the logits: for each slice of rows the
// logits, their log-sum-exp, and (when a gradient is wanted) the gradients of hidden and weight are made at once.
// hidden (N, d); weight (rows, d) and bias (rows) or undefined, of which the first `vocabulary` rows take part;
// targets (N) int64, negative: not scored. Label smoothing e as fairseq: (1 - e) * nll + e / vocabulary * sum over all
// entries of their nll. With targets on the CPU nothing waits for a GPU.
struct SlicedLoss {
  at::Tensor smoothed;  // scalar fp32, differentiable: nats summed over scored rows, with label smoothing
  at::Tensor nll;       // scalar fp64: the same without; reading either waits for a GPU
  int64_t scored = 0;
};
// `there`: targets on hidden's device; undefined: they are copied.
SlicedLoss sliced_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& targets, int64_t vocabulary, double label_smoothing,
                                const at::Tensor& there = {});
// How many targets (int64, on the CPU) are scored. Error(failed) for one that is no entry of the vocabulary.
int64_t count_scored(const at::Tensor& targets, int64_t vocabulary);

// log p(target) (N) fp32, nats, 0 where the target is negative; same slices, no gradient.
at::Tensor sliced_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& targets, int64_t vocabulary);

// Settings of the process that make large tensors cheap on a CPU (allocator thresholds, threads). Called once by a tool
// before the first tensor. threads 0: all cores.
void prepare_cpu(int threads);

}  // namespace mh::nn
