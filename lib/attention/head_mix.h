// Linear maps across heads, y_i = Σ_j m[j, i] x_j, the operation of every method that mixes heads, and the name of
// the parameter of a mixer's matrix. In shapes, h and hv are the numbers of heads before and after mixing, and n is the
// number of elements of a head for each query: Tk for logits and probabilities, dv for head outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/causal_product.h"

namespace mh::attention {

// Name of the parameter of a mixing matrix (h, hv), without the layer name before it. In talking-heads attention this
// is the matrix that mixes probabilities, and h is the number of heads in the softmax.
constexpr const char* kMixingMatrixName = ".mixer.matrix";

// Observation (Observer::notify_subscribers) of a mixer's learned matrix across heads, (h, hv) or (B, Tq, h, hv); rows
// are source heads.
struct MixingObservation {
  at::Tensor matrix;
};

// Options of mix_heads() and mix_values().
struct MixOptions {
  // Entries x[b, i, t, s] with s > t + *causal_offset are hidden; empty: no entry is hidden. The CPU kernel does not
  // read hidden entries of x or of gradients and writes 0 to hidden entries of its results, which halves the work of
  // causal self-attention. The LibTorch operations for other devices and types read hidden entries, too.
  CausalOffset causal_offset;
  // Whether the CPU kernel of mix_heads() stores the result (B, hv, Tq, n) in the order (B, Tq, hv, n), so that
  // concatenating the heads needs no copy. mix_values() ignores this option.
  bool stores_by_position = false;
};

// Returns y (B, hv, Tq, n), y_i = Σ_j m[j, i] x_j, for x (B, h, Tq, n) and m (h, hv), or (B, Tq, h, hv) with one matrix
// per position. x is the only large tensor that is saved for the backward pass.
at::Tensor mix_heads(const at::Tensor& x, const at::Tensor& m, const MixOptions& options = {});

// Returns Z (B, hv, Tq, dv), Z_i = (Σ_j m[j, i] P_j) V_i, for p (B, h, Tq, Tk), v (B, hv, Tk, dv) and m (h, hv) or
// (B, Tq, h, hv). The backward pass recomputes the mixed probabilities, so that p is the only saved tensor with Tq Tk
// elements per head.
at::Tensor mix_values(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const MixOptions& options = {});

}  // namespace mh::attention
