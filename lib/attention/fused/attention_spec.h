// One fused attention of a whole batch: kernels/attention_params.h with tensors in place of pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "attention_params.h"

namespace mh::attention {

// Relative positions of a score (kernels::RelativeParams); undefined tensors where the score has none.
struct RelativePositions {
  at::Tensor u, v;                 // (h, dk)
  at::Tensor r;                    // (h, D, dk)
  std::vector<kernels::Run> runs;  // all keys
};

struct AttentionSpec {
  bool causal = false;          // query t sees keys 0 … Tk - Tq + t
  int64_t window = 0;           // causal: of these the last `window`; 0: all
  at::Tensor key_lengths = {};  // (B) int64, or undefined: only keys s < key_lengths[b] are real; not with causal
  kernels::Normaliser normaliser = kernels::Normaliser::softmax;
  // Drops probabilities, (B, h, Tq, Tk), as nn::dropout would: after mixing, or before it.
  std::optional<kernels::DropoutFrom> dropout = {};
  bool dropout_before_mixing = false;
  RelativePositions relative = {};
  // (h): the key and value head that each query head, or mixed head, reads; empty: its own.
  std::vector<int64_t> key_heads = {};
  at::Tensor head_scales = {};  // (h) or (B, h), or undefined: the factor of each head of the result

  // The parameters that all rows share and both devices read, for q (B, h, Tq, dk), k and v (B, hv, Tk, dv): everything
  // but pointers, and the pointer to key_heads.
  kernels::AttentionParams params(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool gradient) const;

  // Whether each of `heads` key heads is read exactly once, so that its gradient has one writer.
  bool each_head_once(int64_t heads) const;
  // Sums the gradient (B, h, T, d) of what each query head read over the readers of each key/value head; `like` gives
  // the shape and type of the result.
  at::Tensor reduce_to_kv_heads(const at::Tensor& gradient, const at::Tensor& like) const;
};

// Whether the CPU's kernels take tensors of these types: fp32 or bf16, on a CPU, all of one type.
bool have_cpu_type(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns the mixing matrix m with column i times the scale of head i of the result, if `scales` is defined, as kernels
// read it: fp32, contiguous, (h, hv), (B, h, hv) or (B, Tq, h, hv).
at::Tensor scaled_matrix(const at::Tensor& m, const at::Tensor& scales);

// The relative positions that the CPU's kernels read: fp32, rows padded to whole vectors.
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
