// Matrix products without a gradient of their own, for the operations that define theirs. Rows are contiguous or the
// matrix is a transposed view; no copies are made.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::model {

// x (n, k), weight (m, k), bias (m) or undefined -> x weightᵀ + bias (n, m).
at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// a (k, n), b (k, m) -> aᵀ b (n, m).
at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b);

}  // namespace mh::model
