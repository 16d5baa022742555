// Matrix products without autograd, for operations that define their own gradients. Operands may have any strides;
// contiguous and transposed operands are not copied.
//
// On a CPU the products use oneDNN, in fp32 too: LibTorch would use MKL for fp32 products, which reaches 190 GFLOP/s on
// two cores of an AMD EPYC with AVX-512, where oneDNN reaches 450 (shapes of a small language model). LibTorch's bf16
// products use oneDNN anyway.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "activation.h"

namespace mh::nn {

class Parameter;

using kernels::Activation;
// Returns the activation of each element of x.
at::Tensor activation(const at::Tensor& x, Activation kind);

// Returns fused_activation(x weightᵀ + bias) (n, m) for x (n, k), `weight` (m, k), and `bias` (m) or undefined.
at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                      Activation fused_activation = Activation::none);
// Returns the product a b (n, m) for a (n, k) and b (k, m).
at::Tensor product_nn(const at::Tensor& a, const at::Tensor& b);
// Returns the product aᵀ b (n, m), possibly as a transposed view, for a (k, n) and b (k, m).
at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b);

// Returns the concatenation (Σ n_i, …) of tensors (n_i, …) along the first axis; the tensor itself, not a copy, if
// there is only one; undefined if there is none.
at::Tensor concatenate_rows(at::TensorList tensors);

// Parameters to concatenate along the first axis; null pointers are skipped.
using ParameterRefs = std::initializer_list<const Parameter*>;
// Returns concatenate_rows() of the values of the parameters.
at::Tensor concatenate_values(ParameterRefs parameters);

// Changes the matrix products of the current thread during the lifetime of the object, for decoding. Gradients must be
// disabled, and no parameter may change.
// - The bits of a row of a product x weightᵀ on a CPU depend neither on the number of rows of x nor on the number of
//   threads, so that a sentence decodes to the same tokens on its own and in a batch. The order of oneDNN's additions
//   depends on both numbers, so x is cut into chunks of rows, each computed by one thread and the last one padded with
//   zero rows. Only chunk sizes for which oneDNN computes the same bits as for kFullRows rows are used (ExactSizes). If
//   there is a single chunk, all threads compute it together, so that each reads a part of the weight, provided that
//   the bits are the same.
//   On a GPU, product_nt() pads x to at least kFullRows rows; linear() (ops.h) does not.
// - linear(x, weights, biases) (ops.h) uses a cached concatenation of the weights, on a CPU packed in oneDNN's fastest
//   layout, instead of computing the concatenation for every product.
// - The cached weights take as much memory as the values of their parameters, 2 bytes an element in bf16, so decoding
//   has two copies of the weights. Values that are pages of a mapped file (Parameter::set_evaluation_values()) are
//   released once the cache has its copy, so decoding with them has one copy.
class DecodingProducts {
 public:
  static constexpr int64_t kFullRows = 64;  // number of rows of a product that keeps a core busy

  // Shares the weight cache of `cache_owner`, which may belong to another thread; null: creates a new cache.
  explicit DecodingProducts(const DecodingProducts* cache_owner = current());
  ~DecodingProducts();
  DecodingProducts(const DecodingProducts&) = delete;
  DecodingProducts& operator=(const DecodingProducts&) = delete;
  static DecodingProducts* current();  // the innermost live object of this thread; null if there is none

  // Numbers of rows, ascending, of products in which a row has the bits of a product of kFullRows rows by one thread.
  struct ExactSizes {
    std::vector<int64_t> of_one_thread;  // of products by one thread
    // At most kFullRows; of products by `num_threads` threads together. Empty for a bf16 weight.
    std::vector<int64_t> of_all_threads;
    int64_t num_threads = 0;
  };
  struct Weights {
    at::Tensor weight, bias;   // a packed weight is valid only in product()
    ExactSizes exact_sizes{};  // empty unless weight is a non-empty fp32 or bf16 matrix on a CPU
  };
  // Returns the concatenations of `weights` (n_i, k), packed if possible, and of `biases` (n_i), converted to the type
  // of the weights. The first call with these parameters computes the result and caches it.
  const Weights& weights(ParameterRefs weights, ParameterRefs biases);
  // Returns fused_activation(x weightᵀ + bias) (n, m) for x (n, k) and a weight (m, k) with exact sizes.
  static at::Tensor product(const at::Tensor& x, const Weights& weights, Activation fused_activation);

 private:
  struct WeightCache;
  std::shared_ptr<WeightCache> cache_;
  DecodingProducts* previous_products_;
};

}  // namespace mh::nn
