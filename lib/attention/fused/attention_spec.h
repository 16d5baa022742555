// The arguments of fused attention on a batch, except q, k, v and the mixing matrix: tensors in place of the pointers
// of kernels/attention_params.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "attention_params.h"

namespace mh::attention {

// Relative positions of a score (kernels::RelativeParams); the tensors are undefined if the score has none.
struct RelativePositions {
  at::Tensor u, v;                            // (h, dk): content bias u and position bias v, which are added to queries
  at::Tensor r;                               // (h, D, dk): projected embeddings of D distances
  std::vector<kernels::KeyRange> key_ranges;  // ranges of keys at consecutive positions; they cover all keys
};

// Position bias of the logits (kernels::PositionBiasParams); the tensor is undefined if there is none.
struct PositionBias {
  at::Tensor bias;                            // (h, D), fp32, contiguous: bias of each head at D distances
  std::vector<kernels::KeyRange> key_ranges;  // ranges of keys at consecutive positions; they cover all keys
};

// The properties of a fused attention: mask, normaliser, dropout, relative positions, key/value heads and scale factors
// of heads.
struct AttentionSpec {
  bool causal = false;  // query t sees keys 0 … Tk - Tq + t
  // With `causal`: number of latest keys that a query sees; 0: all keys up to Tk - Tq + t. Without: query t sees the
  // keys s with |t - s| < window; 0: all keys.
  int64_t window = 0;
  at::Tensor key_lengths = {};  // (B) int64: only keys s < key_lengths[b] are real; undefined: all; not with `causal`
  kernels::Normaliser normaliser = kernels::Normaliser::softmax;
  // Dropout of the probabilities (B, h, Tq, Tk), or, with head mixing and without dropout_before_mixing, of the mixed
  // probabilities (B, hv, Tq, Tk). Drops the same elements as nn::dropout.
  std::optional<kernels::DropoutRange> dropout = {};
  bool dropout_before_mixing = false;  // with head mixing: drops probabilities before mixing instead of after it
  RelativePositions relative_positions = {};
  // (h): index of the head of k that each query head reads, and of the head of v that each value head reads; empty:
  // the head of the same index.
  std::vector<int64_t> kv_head_of = {};
  double scale = 0;             // factor of the products of queries and keys; 0: 1/√dk
  at::Tensor head_scales = {};  // (hv) or (B, hv): factor of each value head; undefined: 1
  double soft_cap = 0;          // bound c of the logits x, which become c tanh(x / c); 0: none
  at::Tensor sinks = {};        // (h), fp32: logit of the sink of each query head; undefined: no sinks
  PositionBias position_bias = {};

  // Returns the kernel parameters that do not depend on the batch row, for a CPU or GPU and for q (B, h, Tq, dk), k (B,
  // h, Tk, dk) and v (B, hv, Tk, dv). The pointers `k_head_of`, `v_head_of` and `position_bias.key_ranges` point
  // into this object, `sinks` and `position_bias.bias` into its tensors; the caller sets all others, and for a GPU
  // replaces the pointers into this object. Throws if the sinks or the position bias have another shape or type, or if
  // the key ranges of the bias leave out a key or refer to columns outside the bias. With head mixing, the caller also
  // sets value_heads to hv instead of h. `needs_backward`: whether a backward pass follows.
  kernels::AttentionParams params(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  bool needs_backward) const;

  // Returns whether exactly one query head reads each of the `kv_heads` key/value heads, so that each gradient of a
  // key/value head has one writer.
  bool is_kv_permutation(int64_t kv_heads) const;
  // Returns the gradient of the key/value heads, with the shape and type of `like`. `gradient` (B, h, T, d) has one
  // head for each query head; the result sums the query heads that read the same key/value head.
  at::Tensor reduce_to_kv_heads(const at::Tensor& gradient, const at::Tensor& like) const;
};

// Returns whether the CPU kernels support the types of the tensors: fp32 or bf16 on a CPU, the same type for all three.
bool are_cpu_kernel_types(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns the mixing matrix m in the form that kernels read: fp32, contiguous, (h, hv), (B, h, hv) or (B, Tq, h, hv).
// If `scales`, (hv) or (B, hv), is defined, column i is multiplied by the scale factor of head i of the result.
at::Tensor scaled_matrix(const at::Tensor& m, const at::Tensor& scales);

// Relative positions in the memory layout of the CPU kernels: fp32, rows padded with zeros to multiples of 16 elements,
// and r followed by RelativeParams::kPaddingRows rows of zeros. Owns the memory to which params() points.
class PackedRelativePositions {
 public:
  explicit PackedRelativePositions(const RelativePositions& relative_positions);
  const kernels::RelativeParams& params() const { return params_; }

 private:
  at::Tensor u_, v_, r_, r_transposed_;
  std::vector<kernels::KeyRange> key_ranges_;
  kernels::RelativeParams params_{};
};

}  // namespace mh::attention
