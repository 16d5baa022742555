// Matrix products without a gradient of their own, for the operations that define theirs; any strides, no copies.
//
// On a CPU they go to oneDNN in fp32 too: LibTorch sends fp32 products to MKL, which reaches 190 GFLOP/s on two cores
// of an AMD EPYC with AVX-512 where oneDNN reaches 450 (shapes of a small language model); bf16 goes to oneDNN in
// either case.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::model {

// x (n, k), weight (m, k), bias (m) or undefined -> x weightᵀ + bias (n, m).
at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// a (n, k), b (k, m) -> a b (n, m).
at::Tensor product_nn(const at::Tensor& a, const at::Tensor& b);
// a (k, n), b (k, m) -> aᵀ b (n, m), which may be a transposed view.
at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b);

}  // namespace mh::model
