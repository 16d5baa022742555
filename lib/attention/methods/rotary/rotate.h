// The rotation of queries and keys, with its gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "attention/methods/rotary/rotary_table.h"

namespace mh::attention {

// The projections of a layer: q (B, h, Tq, dk), k (B, hkv, Tk, dk) and v (B, hkv, Tk, dv).
struct ProjectedHeads {
  at::Tensor q, k, v;
};

// Returns x with rotated queries and keys. For n = r / 2 and j < n, elements j and j + n of a head rotate by the angle
// in column j of the rows of their position (Tq, n) or (Tk, n); the elements from r on are copied. Rotated heads are
// stored as (B, T, heads, dk).
//
// The gradient is the rotation by the opposite angle. v stays unchanged, but passes through the operation, so that with
// equal numbers of queries and keys the backward pass writes the three gradients as adjacent slices of one tensor,
// which split_projection() returns without a copy.
//
// fp32 and bf16 on a CPU use the kernel of cpu/rotation.h, which computes in fp32 and rounds once; other types and
// devices use tensor operations, which round once, too.
ProjectedHeads rotate(const ProjectedHeads& x, const RotaryRows& query_rows, const RotaryRows& key_rows);

}  // namespace mh::attention
