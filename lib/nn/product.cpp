// Matrix products through oneDNN's linear operator, and the cache of weights for decoding.
#include "nn/product.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <omp.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "ceil_div.h"
#include "cpu/simd_level.h"
#include "nn/aten.h"
#include "nn/packed_weights.h"
#include "nn/parameter.h"

namespace mh::nn {

namespace {

using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

using ReorderLinearWeight = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);

// Returns the oneDNN operator `name`; nullopt if LibTorch was built without oneDNN and so lacks the operator.
template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> onednn_operator(const char* name) {
  if (!at::globalContext().hasMKLDNN()) return std::nullopt;
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op ? std::optional(op->typed<Signature>()) : std::nullopt;
}

const std::optional<c10::TypedOperatorHandle<LinearPointwise>>& onednn_linear() {
  static const auto op = onednn_operator<LinearPointwise>("mkldnn::_linear_pointwise");
  return op;
}

// Returns whether oneDNN can compute fp32 products of x: LibTorch has the oneDNN operator, and x is a non-empty fp32
// tensor on the CPU.
bool has_onednn_fp32_product(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0 && onednn_linear().has_value();
}

// Returns whether oneDNN can pack the weight.
bool can_be_packed(const at::Tensor& weight) {
  return weight.device().is_cpu() && weight.numel() > 0 && can_pack_weights(weight.scalar_type());
}

// Returns whether find_exact_sizes() applies to the weight, which may be packed.
bool has_row_products(const at::Tensor& weight) {
  return weight.numel() > 0 && weight.device().is_cpu() &&
         (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16);
}

// Returns the matrix in row-major or column-major layout without gaps, or unchanged if it is packed. Copies a matrix
// with other strides, since oneDNN's reference kernels for other strides are a hundred times slower.
at::Tensor make_dense(const at::Tensor& matrix) {
  const bool is_dense = matrix.is_mkldnn() || matrix.is_contiguous() || matrix.t().is_contiguous();
  return is_dense ? matrix : matrix.contiguous();
}

at::Tensor onednn_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          Activation fused_activation = Activation::none) {
  const bool is_tanh = fused_activation == Activation::gelu_tanh;
  const char* name = fused_activation == Activation::relu              ? "relu"
                     : fused_activation == Activation::silu            ? "swish"
                     : is_tanh || fused_activation == Activation::gelu ? "gelu"
                                                                       : "none";
  return onednn_linear()->call(make_dense(x), make_dense(weight),
                               bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, name,
                               c10::List<std::optional<at::Scalar>>(), is_tanh ? "tanh" : "none");
}

constexpr int64_t kFullRows = DecodingProducts::kFullRows;
thread_local DecodingProducts* current_products = nullptr;

// Returns the weight in the opaque layout that oneDNN chooses for products with kFullRows rows; the weight itself if
// LibTorch lacks the oneDNN operator for packing or for products.
at::Tensor pack_weight(const at::Tensor& weight) {
  static const auto op = onednn_operator<ReorderLinearWeight>("mkldnn::_reorder_linear_weight");
  return op && onednn_linear() ? op->call(weight, c10::SymInt(kFullRows)) : weight;
}

// Returns fused_activation(x weightᵀ + bias), computed as one product, not in chunks. The weight may be packed.
at::Tensor whole_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         Activation fused_activation) {
  if (weight.is_mkldnn() || (has_onednn_fp32_product(x) && weight.numel() > 0))
    return onednn_product(x, weight, bias, fused_activation);
  return activation(at::linear(x, weight, bias), fused_activation);
}

// Lets oneDNN compute products of the current thread with one thread, during the lifetime of the object. A parallel
// region is not enough: in a parallel region oneDNN runs with one thread, but plans the product for the maximum number
// of threads.
class SingleThreadScope {
 public:
  SingleThreadScope() { omp_set_num_threads(1); }
  ~SingleThreadScope() { omp_set_num_threads(max_threads_); }
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int max_threads_ = omp_get_max_threads();
};

using ExactSizes = DecodingProducts::ExactSizes;

// Returns fused_activation(x weightᵀ + bias), computed in chunks with exact numbers of rows, for the reason stated at
// DecodingProducts. Divides the rows evenly among the threads, but gives each chunk except the last at least
// kFullRows / 2 rows, and rounds the number of rows of a chunk up to the next exact size.
at::Tensor product_in_chunks(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             Activation fused_activation, const ExactSizes& exact_sizes) {
  const std::vector<int64_t>& chunk_sizes = exact_sizes.of_one_thread;
  const int64_t num_rows = x.size(0), num_threads = at::in_parallel_region() ? 1 : at::get_num_threads(),
                min_chunks = ceil_div(num_rows, chunk_sizes.back()),
                min_chunk_rows =
                    ceil_div(num_rows, std::max(min_chunks, std::min(num_threads, num_rows / (kFullRows / 2)))),
                chunk_rows = *std::lower_bound(chunk_sizes.begin(), chunk_sizes.end(), min_chunk_rows),
                num_chunks = ceil_div(num_rows, chunk_rows);
  const auto product_of_padded_rows = [&](const at::Tensor& rows, int64_t padded_count) {
    const int64_t count = rows.size(0);
    const at::Tensor padded_rows =
        count < padded_count ? at::constant_pad_nd(rows, {0, 0, 0, padded_count - count}) : rows;
    return whole_product(padded_rows, weight, bias, fused_activation).narrow(0, 0, count);
  };
  if (num_chunks == 1 && num_threads > 1 && num_threads == exact_sizes.num_threads) {
    const std::vector<int64_t>& sizes = exact_sizes.of_all_threads;
    if (const auto size = std::lower_bound(sizes.begin(), sizes.end(), num_rows); size != sizes.end())
      return product_of_padded_rows(x, *size);
  }
  std::vector<at::Tensor> results(static_cast<size_t>(num_chunks));
  at::parallel_for(0, num_chunks, 1, [&](int64_t begin, int64_t end) {
    const c10::NoGradGuard no_gradient;
    const SingleThreadScope single_thread;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * chunk_rows, count = std::min(chunk_rows, num_rows - first);
      results[static_cast<size_t>(chunk)] = product_of_padded_rows(
          x.narrow(0, first, count), *std::lower_bound(chunk_sizes.begin(), chunk_sizes.end(), count));
    }
  });
  return num_chunks == 1 ? results[0] : nn::cat(results);
}

// Returns the exact sizes of a weight among a few numbers of rows. The order of oneDNN's additions depends on the shape
// of a product and on the number of threads, not on the values, so one test product for each number of rows suffices.
ExactSizes find_exact_sizes(const at::Tensor& weight, const at::Tensor& bias) {
  constexpr int64_t kDistinctRows = 16;
  // Multiples of kDistinctRows, which include kFullRows. For a large weight, such as an output layer of 128256 x 2048,
  // products of all sizes take seconds, and larger chunks than kFullRows gain nothing.
  constexpr int64_t kLargeWeight = 1 << 22;
  const std::vector<int64_t> candidates = weight.numel() > kLargeWeight
                                              ? std::vector<int64_t>{16, 32, 64}
                                              : std::vector<int64_t>{16, 32, 48, 64, 80, 96, 128, 160};
  // x has kDistinctRows distinct rows, which repeat; their products must have the same bits in each repetition. The
  // elements are fractional parts of multiples of the golden ratio: deterministic numbers without a pattern.
  const at::Tensor x = at::arange(kDistinctRows * weight.size(1), at::kDouble)
                           .mul_(1.618033988749895)
                           .frac_()
                           .sub_(0.5)
                           .view({kDistinctRows, -1})
                           .to(weight.scalar_type())
                           .repeat({candidates.back() / kDistinctRows, 1});
  const auto product = [&](int64_t count) {
    return whole_product(x.narrow(0, 0, count), weight, bias, Activation::none)
        .view({-1, kDistinctRows, weight.size(0)});
  };
  ExactSizes sizes;
  at::Tensor expected_rows;
  const auto is_exact = [&](int64_t count) { return product(count).eq(expected_rows).all().item<bool>(); };
  {
    const SingleThreadScope single_thread;
    expected_rows = product(kFullRows)[0];
    for (const int64_t count : candidates)
      if (count == kFullRows || is_exact(count))  // a comparison fails if the weight contains NaN
        sizes.of_one_thread.push_back(count);
  }
  // Results rounded to bf16 seldom show another order of additions, so a test product would prove nothing.
  if (at::in_parallel_region() || weight.scalar_type() != at::kFloat) return sizes;
  sizes.num_threads = at::get_num_threads();
  for (const int64_t count : candidates)
    if (sizes.num_threads > 1 && count <= kFullRows && is_exact(count)) sizes.of_all_threads.push_back(count);
  return sizes;
}

}  // namespace

bool can_pack_weights(at::ScalarType type) {
  // oneDNN has fast bf16 kernels only for a processor with bf16 instructions.
  const bool has_kernels =
      type == at::kFloat || (type == at::kBFloat16 && kernels::best_simd_level() >= kernels::SimdLevel::avx512_bf16);
  return has_kernels && onednn_linear().has_value();
}

at::Tensor concatenate_rows(at::TensorList tensors) {
  return tensors.empty() ? at::Tensor() : tensors.size() == 1 ? tensors[0] : nn::cat(tensors);
}

at::Tensor concatenate_values(ParameterRefs parameters) {
  std::vector<at::Tensor> values;
  for (const Parameter* p : parameters)
    if (p != nullptr) values.push_back(p->value());
  return concatenate_rows(values);
}

struct DecodingProducts::WeightCache {
  std::mutex fill_mutex;
  // Key: the parameters of the weight and of the bias.
  std::map<std::pair<std::vector<const Parameter*>, std::vector<const Parameter*>>, Weights> weights;
  // Key: shape (2 axes) and type of the weight, and whether there is a bias.
  std::map<std::tuple<int64_t, int64_t, at::ScalarType, bool>, ExactSizes> exact_sizes;
};

DecodingProducts::DecodingProducts(const DecodingProducts* cache_owner)
    : cache_(cache_owner != nullptr ? cache_owner->cache_ : std::make_shared<WeightCache>()),
      previous_products_(std::exchange(current_products, this)) {}
DecodingProducts::~DecodingProducts() { current_products = previous_products_; }
DecodingProducts* DecodingProducts::current() { return current_products; }

const DecodingProducts::Weights& DecodingProducts::weights(ParameterRefs weights, ParameterRefs biases) {
  const std::lock_guard lock(cache_->fill_mutex);
  auto [it, is_new] = cache_->weights.try_emplace(std::pair(std::vector(weights), std::vector(biases)));
  if (is_new) {
    it->second = {concatenate_values(weights), concatenate_values(biases)};
    at::Tensor& bias = it->second.bias;
    if (bias.defined()) bias = bias.to(it->second.weight.scalar_type());
    at::Tensor& weight = it->second.weight;
    if (can_be_packed(weight)) weight = pack_weight(weight);
    if (has_row_products(weight)) {
      ExactSizes& sizes = cache_->exact_sizes[{weight.size(0), weight.size(1), weight.scalar_type(), bias.defined()}];
      if (sizes.of_one_thread.empty()) sizes = find_exact_sizes(weight, bias);
      it->second.exact_sizes = sizes;
    }
    for (const Parameter* p : weights)
      if (p != nullptr && !weight.is_same(p->value())) p->release_value_pages();
  }
  return it->second;
}

at::Tensor DecodingProducts::product(const at::Tensor& x, const Weights& weights, Activation fused_activation) {
  if (x.size(0) == 0) return whole_product(x, weights.weight, weights.bias, fused_activation);
  return product_in_chunks(x, weights.weight, weights.bias, fused_activation, weights.exact_sizes);
}

at::Tensor activation(const at::Tensor& x, Activation kind) {
  if (kind == Activation::none) return x;
  if (kind == Activation::silu) return at::silu(x);
  return kind == Activation::relu ? at::relu(x) : at::gelu(x, kind == Activation::gelu_tanh ? "tanh" : "none");
}

at::Tensor product_nt(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      Activation fused_activation) {
  const int64_t num_rows = x.size(0);
  if (current_products == nullptr || num_rows == 0) return whole_product(x, weight, bias, fused_activation);
  if (x.is_cpu()) return product_in_chunks(x, weight, bias, fused_activation, {{kFullRows}, {}});
  if (num_rows >= kFullRows) return whole_product(x, weight, bias, fused_activation);
  return whole_product(at::constant_pad_nd(x, {0, 0, 0, kFullRows - num_rows}), weight, bias, fused_activation)
      .narrow(0, 0, num_rows);
}

at::Tensor product_nn(const at::Tensor& a, const at::Tensor& b) {
  if (has_onednn_fp32_product(a) && b.numel() > 0) return onednn_product(a, b.t(), {});
  return at::mm(a, b);
}

at::Tensor product_tn(const at::Tensor& a, const at::Tensor& b) {
  // A result with more rows than columns is computed as its transpose: products whose result has fewer rows than
  // columns are up to 1.2 times as fast.
  if (a.size(1) > b.size(1)) return product_nn(b.t(), a).t();
  return product_nn(a.t(), b);
}

}  // namespace mh::nn
