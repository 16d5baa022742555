// What a layer asks of the fused path, for a whole batch: kernels/policy.h with tensors in place of pointers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "policy.h"

namespace mh::attention {

// Of a score that knows distances (kernels::Relative). Undefined tensors: of one that does not.
struct RelativePositions {
  at::Tensor u, v;                 // (h, dk)
  at::Tensor r;                    // (h, D, dk)
  std::vector<kernels::Run> runs;  // all keys
  bool wants_gradient() const { return u.defined() && (u.requires_grad() || v.requires_grad() || r.requires_grad()); }
};

struct FusedPolicy {
  bool causal = false;          // query t sees keys 0 … Tk - Tq + t
  int64_t window = 0;           // causal: of these the last so many; 0: all
  at::Tensor key_lengths = {};  // (B) int64, or undefined: only keys s < key_lengths[b] are real; not with causal
  kernels::Normaliser normaliser = kernels::Normaliser::softmax;
  // Probabilities, (B, h, Tq, Tk), are dropped as model::dropout would: mixed ones, or those that are mixed.
  std::optional<kernels::DropoutFrom> drops = {};
  bool dropped_before_mixing = false;
  RelativePositions relative = {};
  // (h): the key and value head that each query head, or mixed one, reads; empty: its own.
  std::vector<int64_t> key_heads = {};
  at::Tensor head_scales = {};  // (h) or (B, h), or undefined: what each head of the result is multiplied by

  // What a kernel reads of it and all rows share, for q (B, h, Tq, d) and k: all but relative positions, scales of
  // heads and where dropout's elements begin.
  void describe(const at::Tensor& q, const at::Tensor& k, bool gradient, kernels::Policy& policy) const;

  // Whether each of so many heads is read once, so that its gradient has one place.
  bool each_head_once(int64_t heads) const;
  // The gradient (B, h, T, d) of what each query head read, as that of the heads that were read, `like` it.
  at::Tensor of_heads(const at::Tensor& gradient, const at::Tensor& like) const;

  // For a backward pass, which has the tensors again from where it saved them.
  void keep(torch::autograd::AutogradContext& context) const;
  static FusedPolicy kept(torch::autograd::AutogradContext& context, const at::Tensor& key_lengths,
                          const RelativePositions& tensors, const at::Tensor& head_scales);
};

// A tensor that an autograd function may be called without.
using Given = std::optional<at::Tensor>;
inline Given given_or_not(const at::Tensor& x) { return x.defined() ? Given(x) : std::nullopt; }

// What a kernel reads of relative positions, in fp32; null where there are none.
class Distances {
 public:
  explicit Distances(const RelativePositions& given);
  const kernels::Relative* get() const { return u_.defined() ? &relative_ : nullptr; }
  int64_t rows() const { return relative_.distances; }

 private:
  at::Tensor u_, v_, rows_, turned_;
  std::vector<kernels::Run> runs_;
  kernels::Relative relative_{};
};

}  // namespace mh::attention
