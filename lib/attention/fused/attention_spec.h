// The arguments of a fused attention call on a whole batch, besides q, k and v: kernels/attention_params.h with tensors
// in place of pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "attention_params.h"

namespace mh::attention {

// Relative positions of a score (kernels::RelativeParams); the tensors are undefined if the score has none.
struct RelativePositions {
  at::Tensor u, v;                 // (h, dk): biases of queries in products with keys and with distances
  at::Tensor r;                    // (h, D, dk): projected embedding of each distance
  std::vector<kernels::Run> runs;  // runs of keys without a gap, which together are all keys
};

// A fused attention without its operands: mask, normaliser, dropout, relative positions, and heads.
struct AttentionSpec {
  bool causal = false;          // query t sees keys 0 … Tk - Tq + t
  int64_t window = 0;           // causal: only the last `window` of these keys; 0: all
  at::Tensor key_lengths = {};  // (B) int64, or undefined: only keys s < key_lengths[b] are real; not with causal
  kernels::Normaliser normaliser = kernels::Normaliser::softmax;
  // Dropout of probabilities (B, h, Tq, Tk), after mixing or before it, with the same random decisions as nn::dropout.
  std::optional<kernels::DropoutFrom> dropout = {};
  bool dropout_before_mixing = false;
  RelativePositions relative = {};
  // (h): key head that each query head reads and value head that each head of the result reads; empty: the head of the
  // same index.
  std::vector<int64_t> key_heads = {};
  at::Tensor head_scales = {};  // (h) or (B, h), or undefined: factor of each head of the result

  // Returns the kernel parameters that all rows of the batch share on either device, for q (B, h, Tq, dk), k
  // (B, h, Tk, dk) and v (B, hv, Tk, dv). Of the pointers it sets only those to key_heads.
  kernels::AttentionParams params(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool gradient) const;

  // Returns whether each of the `heads` key heads is read by exactly one query head, so that its gradient has one
  // writer.
  bool each_head_once(int64_t heads) const;
  // Sums `gradient` (B, h, T, d), with one head per reader, over the readers of each key/value head. `like` gives the
  // shape and type of the result.
  at::Tensor reduce_to_kv_heads(const at::Tensor& gradient, const at::Tensor& like) const;
};

// Returns whether our CPU kernels take tensors of these types: fp32 or bf16 on a CPU, all of one type.
bool have_cpu_type(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns the mixing matrix m as kernels read it: fp32, contiguous, (h, hv), (B, h, hv) or (B, Tq, h, hv). If `scales`
// is defined, column i is multiplied by the scale of head i of the result.
at::Tensor scaled_matrix(const at::Tensor& m, const at::Tensor& scales);

// Relative positions in the layout of the CPU kernels: fp32, rows padded to whole vectors.
class PackedRelative {
 public:
  explicit PackedRelative(const RelativePositions& from);
  const kernels::RelativeParams& params() const { return params_; }

 private:
  at::Tensor u_, v_, rows_, transposed_;
  std::vector<kernels::Run> runs_;
  kernels::RelativeParams params_{};
};

}  // namespace mh::attention
