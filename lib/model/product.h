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

// While one lives, products x weightᵀ of this thread have at least 64 rows, filled up with zeros. From so many on the
// bits of a row do not depend on how many others there are (oneDNN chooses another order of sums for a few), so that
// what is decoded alone and in a batch is the same.
class FullProducts {
 public:
  FullProducts();
  ~FullProducts();
  FullProducts(const FullProducts&) = delete;
  FullProducts& operator=(const FullProducts&) = delete;

 private:
  bool before_;
};

}  // namespace mh::model
