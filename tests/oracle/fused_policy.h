// Attention with all that a policy of fused attention says, by tensor operations of any type and device written from
// the equations: in double a reference, in fp32 or bf16 what composed operations make of it.
#pragma once

#include <c10/core/GradMode.h>

#include <cmath>
#include <vector>

#include "attention/fused/attention_spec.h"
#include "fixtures/aten.h"

namespace reference::policy {

namespace kernels = mh::kernels;
using mh::attention::AttentionSpec;

using Tensors = std::vector<at::Tensor>;

// Indices of the tensors that a case has. m, scales, u, v and r of relative positions may be undefined; all but r are
// fp32 beside any narrower type.
enum { kQ, kK, kV, kM, kScales, kU, kBias, kR };
inline bool of_type(size_t i) { return i < kM || i == kR; }

struct Inputs {
  Tensors given;  // fp32, on the CPU
  at::Tensor dout;
  AttentionSpec policy;
  at::Tensor kept;  // what dropout leaves, (B, h or hv, Tq, Tk), or undefined
};

inline at::Tensor read_heads(const Inputs& x, const at::Tensor& t) {
  const auto& heads = x.policy.key_heads;
  return heads.empty() ? t : t.index_select(1, at::tensor(heads, at::kLong).to(t.device()));
}

inline at::Tensor logits_of(const Inputs& x, const Tensors& t) {
  const at::Tensor &q = t[kQ], keys = read_heads(x, t[kK]).transpose(2, 3);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  if (!t[kR].defined()) return at::matmul(q, keys) * scale;
  const auto with = [&](const at::Tensor& bias) { return (q + bias.unsqueeze(1)).to(q.scalar_type()); };
  Tensors places;  // of each query and key in r
  for (const kernels::Run& run : x.policy.relative.runs)
    places.push_back(run.row + q.size(2) - 1 - at::arange(q.size(2)).unsqueeze(1) + at::arange(run.count).unsqueeze(0));
  const at::Tensor place = at::cat(places, 1)
                               .clamp(0, t[kR].size(1) - 1)  // any row where a mask hides the key
                               .to(q.device())
                               .expand({q.size(0), q.size(1), q.size(2), keys.size(3)});
  return (at::matmul(with(t[kU]), keys) + at::matmul(with(t[kBias]), t[kR].transpose(1, 2)).gather(3, place)) * scale;
}

inline at::Tensor probabilities_of(const Inputs& x, const at::Tensor& logits) {
  const int64_t queries = logits.size(2), keys = logits.size(3);
  const at::Tensor t = at::arange(queries).unsqueeze(1) + (keys - queries), s = at::arange(keys).unsqueeze(0);
  at::Tensor hidden = at::zeros({1, 1, queries, keys}, at::kBool);
  if (x.policy.causal) hidden = hidden.logical_or(s > t);
  if (x.policy.window > 0) hidden = hidden.logical_or(s <= t - x.policy.window);
  if (x.policy.key_lengths.defined()) hidden = hidden.logical_or(s.ge(x.policy.key_lengths.view({-1, 1, 1, 1})));
  hidden = hidden.to(logits.device());
  const bool sigsoftmax = x.policy.normaliser == kernels::Normaliser::sigsoftmax;
  const at::Tensor a = sigsoftmax ? 2 * logits - at::softplus(logits, 1, 40) : logits;
  return at::softmax(a.masked_fill(hidden, -INFINITY), -1).masked_fill(hidden, 0);
}

inline at::Tensor joined(const Inputs& x, const at::Tensor& probabilities, const Tensors& t) {
  at::Tensor p = probabilities;
  const at::Tensor &m = t[kM], &scales = t[kScales];
  const at::Tensor kept = x.kept.defined() ? x.kept.to(p.options()) : at::Tensor();
  if (kept.defined() && x.policy.dropout_before_mixing) p = p * kept;
  if (m.defined())
    p = at::einsum(m.dim() == 4   ? "bjts,btji->bits"
                   : m.dim() == 3 ? "bjts,bji->bits"
                                  : "bjts,ji->bits",
                   {p, m.to(p.scalar_type())});
  if (kept.defined() && !x.policy.dropout_before_mixing) p = p * kept;
  const at::Tensor out = at::matmul(p, read_heads(x, t[kV]));
  if (!scales.defined()) return out;
  return out * (scales.dim() == 2 ? scales : scales.unsqueeze(0)).unsqueeze(-1).unsqueeze(-1).to(out.scalar_type());
}

inline at::Tensor composed(const Inputs& x, const Tensors& t) {
  return joined(x, probabilities_of(x, logits_of(x, t)), t);
}

// What is given, rounded to `rounded`, as leaves of a type and a device.
inline Tensors leaves_of(const Inputs& x, at::ScalarType rounded, at::ScalarType type, at::Device device) {
  Tensors leaves;
  for (size_t i = 0; i < x.given.size(); ++i) {
    at::Tensor t = x.given[i];
    if (t.defined()) {
      if (of_type(i)) t = t.to(rounded);
      t = t.to(device, of_type(i) || type == at::kDouble ? type : at::kFloat).detach().clone().requires_grad_();
    }
    leaves.push_back(t);
  }
  return leaves;
}

// The result, then the gradients of what is given, on the CPU.
template <class Attend>
Tensors results(const Inputs& x, at::ScalarType rounded, at::ScalarType type, at::Device device, const Attend& attend) {
  const Tensors leaves = leaves_of(x, rounded, type, device);
  const at::Tensor out = attend(x, leaves);
  out.backward(x.dout.to(rounded).to(device, type));
  Tensors all{out.detach().cpu()};
  for (const at::Tensor& t : leaves)
    if (t.defined()) all.push_back(t.grad().cpu());
  return all;
}

// The same if all terms of a sum had one sign: what sums can lose is a share of this.
inline Tensors without_signs(const Inputs& x, at::ScalarType rounded) {
  const Tensors given = leaves_of(x, rounded, at::kDouble, at::kCPU);
  const at::Tensor p = probabilities_of(x, logits_of(x, given)).detach().requires_grad_();
  Tensors sizes;
  for (const at::Tensor& t : given) sizes.push_back(t.defined() ? t.detach().abs().requires_grad_() : t);
  const at::Tensor out = joined(x, p, sizes);
  out.backward(x.dout.to(rounded).to(at::kDouble).abs());
  const at::Tensor of_p = p.detach() * p.grad(), slope = of_p + p.detach() * of_p.sum(-1, true);
  logits_of(x, sizes).backward(x.policy.normaliser == kernels::Normaliser::sigsoftmax ? 2 * slope : slope);
  Tensors all{out.detach()};
  for (const at::Tensor& t : sizes)
    if (t.defined()) all.push_back(t.grad());
  return all;
}

// Returns the largest logit if all its terms had one sign.
inline double logit_size(const Inputs& x, at::ScalarType rounded) {
  const c10::NoGradGuard no_gradient;
  Tensors sizes;
  for (const at::Tensor& t : leaves_of(x, rounded, at::kDouble, at::kCPU)) sizes.push_back(t.defined() ? t.abs() : t);
  return logits_of(x, sizes).max().item<double>();
}

}  // namespace reference::policy
