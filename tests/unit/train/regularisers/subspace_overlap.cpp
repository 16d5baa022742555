// The regulariser subspace-overlap: values and gradients against plain loops over pairs of heads.
#include <catch2/catch.hpp>

#include "fixtures/loss_terms.h"
#include "fixtures/numbers.h"
#include "nn/parameter.h"

using namespace mh;
using namespace mh::train;
using loss_terms::inner_product;
using loss_terms::kOverlaps;
using loss_terms::make_regulariser;
using loss_terms::near_term;
using loss_terms::term_after_backward;

TEST_CASE("subspace-overlap equals plain loops over pairs of heads", "[regularisers]") {
  const int64_t batch = 2, heads = 3, n = 4;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(at::softmax(at::randn({batch, heads, n, n}), -1).requires_grad_());
  double row_overlap = 0, column_overlap = 0;
  for (const at::Tensor& p : layers)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = 0; j < heads; ++j) {
          if (i == j) continue;
          const at::Tensor x = p[b][i].detach().to(at::kDouble), y = p[b][j].detach().to(at::kDouble);
          const at::Tensor r = at::matmul(x, y.t()), c = at::matmul(x.t(), y);
          row_overlap += inner_product(r, r) / static_cast<double>(batch * heads * (heads - 1) * n);
          column_overlap += inner_product(c, c) / static_cast<double>(batch * heads * (heads - 1) * n);
        }
  CHECK(term_after_backward(*make_regulariser("subspace-overlap", "subspace = 'rows'"), layers, false) ==
        near_term(0.5 * row_overlap));
  CHECK(term_after_backward(*make_regulariser("subspace-overlap", "subspace = 'columns'"), layers, false) ==
        near_term(0.5 * column_overlap));
}

namespace {

// Returns the sum over layers of `row_weight` R_d + `column_weight` R_c, in fp64: sums over pairs of heads and over
// entries, as subspace_overlap.cpp defines R_d and R_c.
double naive_overlaps(const std::vector<at::Tensor>& layers, double row_weight, double column_weight) {
  double sum = 0;
  for (const at::Tensor& layer : layers) {
    const at::Tensor p = layer.detach().to(at::kDouble).contiguous();
    const int64_t batch = p.size(0), heads = p.size(1), n = p.size(2), keys = p.size(3);
    const auto* x = p.const_data_ptr<double>();
    const auto element = [&](int64_t b, int64_t h, int64_t t, int64_t s) {
      return x[((b * heads + h) * n + t) * keys + s];
    };
    const double num_pairs = static_cast<double>(heads * (heads - 1)) / 2;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = i + 1; j < heads; ++j) {
          double row_overlap = 0, column_overlap = 0;
          for (int64_t t = 0; t < n; ++t)
            for (int64_t u = 0; u < n; ++u) {
              double dot = 0;
              for (int64_t s = 0; s < keys; ++s) dot += element(b, i, t, s) * element(b, j, u, s);
              row_overlap += dot * dot;
            }
          for (int64_t s = 0; s < keys; ++s)
            for (int64_t v = 0; v < keys; ++v) {
              double dot = 0;
              for (int64_t t = 0; t < n; ++t) dot += element(b, i, t, s) * element(b, j, t, v);
              column_overlap += dot * dot;
            }
          sum += (row_weight * row_overlap / static_cast<double>(n) +
                  column_weight * column_overlap / static_cast<double>(keys)) /
                 (num_pairs * static_cast<double>(batch));
        }
  }
  return sum;
}

}  // namespace

TEST_CASE("two subspace-overlap sections add R_d and R_c to the loss, and the gradient equals finite differences",
          "[regularisers]") {
  Config config;
  config.load_text(kOverlaps, "test");
  Regularisers terms;
  terms.read(config, "train.regularisers", regularisers(), true);
  config.check_all_known();
  nn::ParameterList list(at::kCPU);
  terms.start(list, {});
  REQUIRE(terms.observer() != nullptr);
  std::vector<at::Tensor> layers;
  for (uint64_t seed : {1, 2})
    layers.push_back(at::softmax(numbers::normal({2, 3, 4, 5}, seed), -1).detach().requires_grad_());
  for (const at::Tensor& p : layers) terms.observer()->observe_probabilities({}, p);
  const at::Tensor value = terms.loss({});
  CHECK(value.item<double>() == near_term(naive_overlaps(layers, 0.5, 2.0)));
  value.backward();
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    // The gradient in fp32 has the roundings of the forward and of the backward pass.
    const double fp32_error =
        tolerance::chain_error_bound(2 * 64, tolerance::kFp32, 2 * numbers::max_abs(layers[layer].grad()));
    for (int64_t i = 0; i < layers[layer].numel(); ++i) {
      auto shifted_loss = [&](double shift) {
        std::vector<at::Tensor> shifted_layers;
        for (const at::Tensor& p : layers) shifted_layers.push_back(p.detach().to(at::kDouble));
        shifted_layers[layer].view({-1})[i] += shift;
        return naive_overlaps(shifted_layers, 0.5, 2.0);
      };
      // The loss is a sum over 2 layers, 2 rows and 3 pairs of heads; each pair of heads has 4·4 pairs of queries with
      // sums of 5 terms and 5·5 pairs of keys with sums of 4 terms.
      const rounding::Slope slope = rounding::slope(shifted_loss, 1e-4, 2 * 2 * 3 * (16 * 5 + 25 * 4));
      CHECK(layers[layer].grad().view({-1})[i].item<double>() ==
            rounding::within(slope.value, slope.error + fp32_error));
    }
  }
}
