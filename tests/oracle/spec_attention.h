// Attention with every option of attention::AttentionSpec, as tensor operations of any type and on any device, written
// from the equations. In double precision it is the reference; in fp32 or bf16 it has the rounding errors of the
// composed path.
#pragma once

#include <c10/core/GradMode.h>

#include <cmath>
#include <vector>

#include "attention/fused/attention_spec.h"
#include "fixtures/aten.h"

namespace reference::spec {

namespace kernels = mh::kernels;
using mh::attention::AttentionSpec;

using Tensors = std::vector<at::Tensor>;

// Indices of the operands of a case: q (B, h, Tq, dk); k and v (B, key/value heads, Tk, dk or dv); the mixing matrix m
// (h, hv), (B, h, hv) or (B, Tq, h, hv); the head scales (hv) or (B, hv); and for relative positions the biases u
// (kContentBias) and v (kPositionBias), (h, dk), and the embeddings r (kDistanceRows) of D distances, (h, D, dk); the
// sinks (h); and the position bias (kDistanceBias) of D distances, (h, D). All but q, k and v may be undefined or left
// out at the end.
enum { kQ, kK, kV, kMatrix, kHeadScales, kContentBias, kPositionBias, kDistanceRows, kSinks, kDistanceBias };
constexpr size_t kNumOperands = kDistanceBias + 1;
// Returns operand i of t; undefined if it is left out.
inline at::Tensor operand(const Tensors& t, size_t i) { return i < t.size() ? t[i] : at::Tensor(); }
// Returns whether operand i has the type of q. The matrix, the head scales, the biases u and v, the sinks and the
// position bias are fp32 even if q is narrower.
inline bool has_query_type(size_t i) { return i < kMatrix || i == kDistanceRows; }

struct Inputs {
  Tensors operands;  // indexed by kQ … kDistanceBias; fp32, on the CPU
  at::Tensor dout;   // (B, hv, Tq, dv), gradient of the output
  AttentionSpec spec;
  at::Tensor dropout_mask;  // (B, h or hv, Tq, Tk), entries 0 or 1 / (1 - p); undefined: no dropout
};

// Returns t, which is k or v (B, key/value heads, Tk, size), with one head for each reader: the query heads read k, and
// the value heads read v. The result is (B, h or hv, Tk, size).
inline at::Tensor gather_kv_heads(const Inputs& x, const at::Tensor& t) {
  const auto& heads = x.spec.kv_head_of;
  return heads.empty() ? t : t.index_select(1, at::tensor(heads, at::kLong).to(t.device()));
}

// Returns, for each query and key (Tq, keys), the row of their distance in a table of `num_rows` distances.
inline at::Tensor distance_rows(const std::vector<kernels::KeyRange>& key_ranges, int64_t num_queries,
                                int64_t num_rows) {
  Tensors range_rows;
  for (const kernels::KeyRange& key_range : key_ranges)
    range_rows.push_back(key_range.first_row + num_queries - 1 - at::arange(num_queries).unsqueeze(1) +
                         at::arange(key_range.num_keys).unsqueeze(0));
  return mh::nn::cat(range_rows, 1).clamp(0, num_rows - 1);  // a masked key may have a row outside the table
}

// Returns the scaled logits (B, h, Tq, Tk) before the soft cap, the position bias and the mask.
inline at::Tensor logits_of(const Inputs& x, const Tensors& t) {
  const at::Tensor &q = t[kQ], keys = gather_kv_heads(x, t[kK]).transpose(2, 3);
  const double scale = x.spec.scale > 0 ? x.spec.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  if (!operand(t, kDistanceRows).defined()) return at::matmul(q, keys) * scale;
  const auto add_bias = [&](const at::Tensor& bias) { return (q + bias.unsqueeze(1)).to(q.scalar_type()); };
  const at::Tensor rows_of_r = distance_rows(x.spec.relative_positions.key_ranges, q.size(2), t[kDistanceRows].size(1))
                                   .to(q.device())
                                   .expand({q.size(0), q.size(1), q.size(2), keys.size(3)});
  return (at::matmul(add_bias(t[kContentBias]), keys) +
          at::matmul(add_bias(t[kPositionBias]), t[kDistanceRows].transpose(1, 2)).gather(3, rows_of_r)) *
         scale;
}

// Returns the position bias (h, Tq, Tk) of each query and key; undefined if there is none.
inline at::Tensor position_bias_of(const Inputs& x, const Tensors& t) {
  const at::Tensor bias = operand(t, kDistanceBias);
  if (!bias.defined()) return {};
  const at::Tensor rows = distance_rows(x.spec.position_bias.key_ranges, t[kQ].size(2), bias.size(1)).to(bias.device());
  return bias.index_select(1, rows.flatten()).unflatten(1, rows.sizes());
}

// Returns the scaled logits after the soft cap.
inline at::Tensor capped(const Inputs& x, const at::Tensor& logits) {
  return x.spec.soft_cap > 0 ? x.spec.soft_cap * at::tanh(logits / x.spec.soft_cap) : logits;
}

// The probabilities of the keys (B, h, Tq, Tk) and of the sink of each head (B, h, Tq, 1), which is undefined without
// sinks. Masked entries are 0, and in a fully masked row all entries.
struct Probabilities {
  at::Tensor keys, sink;
};
// Returns the probabilities for scaled logits and the operands t.
inline Probabilities probabilities_of(const Inputs& x, const at::Tensor& scaled_logits, const Tensors& operands) {
  at::Tensor logits = capped(x, scaled_logits);
  const at::Tensor bias = position_bias_of(x, operands), sinks = operand(operands, kSinks);
  if (bias.defined()) logits = logits + bias.to(logits.scalar_type());
  const int64_t queries = logits.size(2), keys = logits.size(3);
  // Without a causal mask, query t is at the position of key t.
  const at::Tensor t = at::arange(queries).unsqueeze(1) + (x.spec.causal ? keys - queries : 0),
                   s = at::arange(keys).unsqueeze(0);
  at::Tensor mask = at::zeros({1, 1, queries, keys}, at::kBool);
  if (x.spec.causal) mask = mask.logical_or(s > t);
  if (x.spec.window > 0) mask = mask.logical_or(s <= t - x.spec.window).logical_or(s >= t + x.spec.window);
  if (x.spec.key_lengths.defined()) mask = mask.logical_or(s.ge(x.spec.key_lengths.view({-1, 1, 1, 1})));
  mask = mask.to(logits.device());
  const bool is_sigsoftmax = x.spec.normaliser == kernels::Normaliser::sigsoftmax;
  const at::Tensor a = is_sigsoftmax ? 2 * logits - at::softplus(logits, 1, 40) : logits;
  const at::Tensor masked = a.masked_fill(mask, -INFINITY);
  if (!sinks.defined()) return {at::softmax(masked, -1).masked_fill(mask, 0), {}};
  const at::Tensor sink_logits =
      sinks.to(a.scalar_type()).view({1, -1, 1, 1}).expand({a.size(0), a.size(1), queries, 1});
  const at::Tensor p = at::softmax(mh::nn::cat({masked, sink_logits}, -1), -1);
  return {p.narrow(-1, 0, keys).masked_fill(mask, 0),
          p.narrow(-1, keys, 1).masked_fill(mask.logical_not().any(-1, true).logical_not(), 0)};
}

// Applies dropout and mixing to the probabilities, multiplies them with the values, applies the head scales, and
// returns the head outputs (B, hv, Tq, dv).
inline at::Tensor head_outputs(const Inputs& x, const at::Tensor& probabilities, const Tensors& t) {
  at::Tensor p = probabilities;
  const at::Tensor m = operand(t, kMatrix), scales = operand(t, kHeadScales);
  const at::Tensor dropout_mask = x.dropout_mask.defined() ? x.dropout_mask.to(p.options()) : at::Tensor();
  if (dropout_mask.defined() && x.spec.dropout_before_mixing) p = p * dropout_mask;
  if (m.defined())
    p = at::einsum(m.dim() == 4   ? "bjts,btji->bits"
                   : m.dim() == 3 ? "bjts,bji->bits"
                                  : "bjts,ji->bits",
                   {p, m.to(p.scalar_type())});
  if (dropout_mask.defined() && !x.spec.dropout_before_mixing) p = p * dropout_mask;
  const at::Tensor out = at::matmul(p, gather_kv_heads(x, t[kV]));
  if (!scales.defined()) return out;
  return out * (scales.dim() == 2 ? scales : scales.unsqueeze(0)).unsqueeze(-1).unsqueeze(-1).to(out.scalar_type());
}

// Returns the head outputs (B, hv, Tq, dv) for the operands t of x.
inline at::Tensor composed_attention(const Inputs& x, const Tensors& t) {
  return head_outputs(x, probabilities_of(x, logits_of(x, t), t).keys, t);
}

// Returns the operands as autograd leaves on `device`. Operands with the type of q are rounded to `input_type`, then
// converted to `type`; the other operands are fp64 if `type` is fp64, otherwise fp32.
inline Tensors leaves_of(const Inputs& x, at::ScalarType input_type, at::ScalarType type, at::Device device) {
  Tensors leaves;
  for (size_t i = 0; i < x.operands.size(); ++i) {
    at::Tensor t = x.operands[i];
    if (t.defined()) {
      if (has_query_type(i)) t = t.to(input_type);
      t = t.to(device, has_query_type(i) || type == at::kDouble ? type : at::kFloat).detach().clone().requires_grad_();
    }
    leaves.push_back(t);
  }
  return leaves;
}

// Runs attend(x, leaves) and its backward pass. Returns the output, then the gradients of the defined operands, on the
// CPU.
template <class Attend>
Tensors run_with_gradients(const Inputs& x, at::ScalarType input_type, at::ScalarType type, at::Device device,
                           const Attend& attend) {
  const Tensors leaves = leaves_of(x, input_type, type, device);
  const at::Tensor out = attend(x, leaves);
  out.backward(x.dout.to(input_type).to(device, type));
  Tensors output_and_gradients{out.detach().cpu()};
  for (const at::Tensor& t : leaves)
    if (t.defined()) output_and_gradients.push_back(t.grad().cpu());
  return output_and_gradients;
}

// Returns, for each element of the output and of each gradient, the sum of the absolute values of its terms, to which
// the rounding error of the element is proportional.
inline Tensors term_magnitudes(const Inputs& x, at::ScalarType input_type) {
  const Tensors leaves = leaves_of(x, input_type, at::kDouble, at::kCPU);
  const at::Tensor scaled_logits = logits_of(x, leaves).detach();
  const Probabilities probabilities = probabilities_of(x, scaled_logits, leaves);
  const at::Tensor p = probabilities.keys.detach().requires_grad_();
  Tensors abs_leaves;
  for (const at::Tensor& t : leaves) abs_leaves.push_back(t.defined() ? t.detach().abs().requires_grad_() : t);
  const at::Tensor out = head_outputs(x, p, abs_leaves);
  out.backward(x.dout.to(input_type).to(at::kDouble).abs());
  const at::Tensor p_dp = p.detach() * p.grad(), delta = p_dp.sum(-1, true);
  at::Tensor da = p_dp + p.detach() * delta;
  if (x.spec.normaliser == kernels::Normaliser::sigsoftmax) da = 2 * da;
  if (const at::Tensor bias = position_bias_of(x, abs_leaves); bias.defined()) bias.backward(da.sum(0));
  if (probabilities.sink.defined())
    abs_leaves[kSinks].mutable_grad() = (probabilities.sink.detach() * delta).sum(at::IntArrayRef{0, 2, 3});
  if (x.spec.soft_cap > 0) da = da * (1 - (capped(x, scaled_logits) / x.spec.soft_cap).square());
  logits_of(x, abs_leaves).backward(da);
  Tensors magnitudes{out.detach()};
  for (const at::Tensor& t : abs_leaves)
    if (t.defined()) magnitudes.push_back(t.grad());
  return magnitudes;
}

// Returns the maximum over all logits of the sum of the absolute values of a logit's terms.
inline double logit_magnitude(const Inputs& x, at::ScalarType input_type) {
  const c10::NoGradGuard no_gradient;
  Tensors abs_leaves;
  for (const at::Tensor& t : leaves_of(x, input_type, at::kDouble, at::kCPU))
    abs_leaves.push_back(t.defined() ? t.abs() : t);
  return logits_of(x, abs_leaves).max().item<double>();
}

}  // namespace reference::spec
