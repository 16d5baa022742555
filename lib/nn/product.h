// Matrix products without a gradient of their own, for the operations that define theirs; any strides, no copies.
//
// On a CPU they go to oneDNN in fp32 too: LibTorch sends fp32 products to MKL, which reaches 190 GFLOP/s on two cores
// of an AMD EPYC with AVX-512 where oneDNN reaches 450 (shapes of a small language model); bf16 goes to oneDNN in
// either case.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>
#include <vector>

namespace mh::nn {

class Parameter;

// The function that is applied to a result, element by element.
enum class Activation { none, relu, gelu, gelu_tanh };  // gelu: exact, with erf; gelu_tanh: GPT-2's approximation
at::Tensor activation(const at::Tensor& x, Activation kind);

// x (n, k), weight (m, k), bias (m) or undefined -> activation(x weightᵀ + bias) (n, m).
at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                      Activation then = Activation::none);
// a (n, k), b (k, m) -> a b (n, m).
at::Tensor product_nn(const at::Tensor& a, const at::Tensor& b);
// a (k, n), b (k, m) -> aᵀ b (n, m), which may be a transposed view.
at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b);

// Null ones are left out.
using Parts = std::initializer_list<const Parameter*>;
// Values of parameters (n_i, …) one below another; undefined where there are none.
at::Tensor joined(Parts parts);

// Changes how this thread multiplies while an object lives, which must be without gradients and while no parameter
// changes:
// - products x weightᵀ have at least kFullRows rows, filled up with zeros. With kFullRows or more the bits of a row do
//   not depend on the number of rows (oneDNN chooses another order of sums for a few), so that a sentence decodes to
//   the same tokens alone and in a batch;
// - weights of parameters are joined, and laid out as oneDNN reads them fastest, once and not for every product.
class DecodingProducts {
 public:
  static constexpr int64_t kFullRows = 64;

  // Shares the kept weights of `with`, which lives in this thread or another; keeps its own where that is null.
  explicit DecodingProducts(const DecodingProducts* with = current());
  ~DecodingProducts();
  DecodingProducts(const DecodingProducts&) = delete;
  DecodingProducts& operator=(const DecodingProducts&) = delete;
  static DecodingProducts* current();  // of this thread; null where none lives

  struct Weights {
    at::Tensor weight, bias;  // for product_nt alone
  };
  // `weights` are parameters' (n_i, k), `biases` their (n_i).
  const Weights& weights(Parts weights, Parts biases);

 private:
  struct Kept;
  std::shared_ptr<Kept> kept_;
  DecodingProducts* before_;
};

}  // namespace mh::nn
