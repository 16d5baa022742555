// Matrix products without autograd, for operations that define their own gradients. Operands may have any strides;
// contiguous and transposed ones are not copied.
//
// On a CPU they use oneDNN, in fp32 too: LibTorch uses MKL for fp32 products, which reaches 190 GFLOP/s on two cores of
// an AMD EPYC with AVX-512, where oneDNN reaches 450 (shapes of a small language model). bf16 products use oneDNN in
// either case.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>
#include <vector>

namespace mh::nn {

class Parameter;

// The elementwise function that is applied to a product.
enum class Activation { none, relu, gelu, gelu_tanh };  // gelu: exact, with erf; gelu_tanh: GPT-2's approximation
at::Tensor activation(const at::Tensor& x, Activation kind);

// Returns activation(x weightᵀ + bias) (n, m) for x (n, k), weight (m, k), and bias (m) or undefined.
at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                      Activation fused_activation = Activation::none);
// Returns a b (n, m) for a (n, k) and b (k, m).
at::Tensor product_nn(const at::Tensor& a, const at::Tensor& b);
// Returns aᵀ b (n, m), possibly as a transposed view, for a (k, n) and b (k, m).
at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b);

// Parameters to be concatenated; null pointers are skipped.
using Parts = std::initializer_list<const Parameter*>;
// Concatenates the values of parameters (n_i, …) along the first axis; undefined if there are none.
at::Tensor concatenated(Parts parts);

// Changes the products of this thread during its lifetime, in which there must be no gradients and no parameter may
// change:
// - products x weightᵀ are padded with zero rows to at least kFullRows rows. From kFullRows rows on, the bits of a row
//   do not depend on the number of rows (for fewer rows oneDNN adds in another order), so that a sentence decodes to
//   the same tokens alone and in a batch;
// - weights of parameters are concatenated, and packed in oneDNN's fastest layout, once instead of for every product.
class DecodingProducts {
 public:
  static constexpr int64_t kFullRows = 64;

  // Shares the cached weights of `with`, which lives in this thread or another; null: has a cache of its own.
  explicit DecodingProducts(const DecodingProducts* with = current());
  ~DecodingProducts();
  DecodingProducts(const DecodingProducts&) = delete;
  DecodingProducts& operator=(const DecodingProducts&) = delete;
  static DecodingProducts* current();  // of this thread; null if there is none

  struct Weights {
    at::Tensor weight, bias;  // only for product_nt()
  };
  // Returns the concatenation of weights (n_i, k) and of biases (n_i), which is cached after the first call.
  const Weights& weights(Parts weights, Parts biases);

 private:
  struct Kept;
  std::shared_ptr<Kept> kept_;
  DecodingProducts* before_;
};

}  // namespace mh::nn
