// The regulariser orthogonal-mixing: closed-form values and gradients, for one matrix and for one matrix per position.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/layers.h"
#include "fixtures/loss_terms.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::train;

TEST_CASE("orthogonal-mixing is 0 for an orthogonal matrix M and has the gradient 4 M (MᵀM - I)", "[regularisers]") {
  nn::ParameterList list(at::kCPU);
  list.add("decoder.layers.0.self.mixer.matrix", {4, 4}, {nn::Init::identity(), true, false});
  list.initialise(1);
  auto term = regularisers().make("orthogonal-mixing", "");
  Config config;
  config.load_text("[r]\nweight = 1.0\n", "test");
  config.read("r", *term);
  term->start(list, {});
  at::Tensor& m = list.all().front().master();
  CHECK(term->loss({}).item<double>() == 0);
  {
    c10::NoGradGuard no_gradient;
    m.copy_(std::get<0>(at::linalg_qr(at::randn({4, 4}))));
    // Roundings in an entry of QᵀQ - I: the QR decomposition applies 4 Householder reflections, each with two sums of 4
    // terms, and QᵀQ adds a sum of 4 terms. The regularisation term is the sum of the squares of the 16 entries.
    const double deviation = tolerance::chain_error_bound(4 * 2 * 4 + 4, tolerance::kFp32, 1);
    CHECK(term->loss({}).item<double>() <= 16 * deviation * deviation);
    // Mixing by an orthogonal matrix preserves the sum of squares of the probabilities.
    const at::Tensor p = at::softmax(at::randn({2, 4, 5, 5}), -1);
    const double squares = p.to(at::kDouble).square().sum().item<double>();
    CHECK(at::einsum("ji,bjts->bits", {m.to(at::kDouble), p.to(at::kDouble)}).square().sum().item<double>() ==
          rounding::within(squares, 4 * deviation * squares));  // |QᵀQ - I| ≤ 4 deviation
    m.copy_(at::randn({4, 4}));
  }
  term->loss({}).backward();
  const at::Tensor d = m.detach().to(at::kDouble), identity = at::eye(4, at::kDouble);
  // Roundings in fp32: two products of 4 terms, the difference, the square and the weight. The bound is relative to the
  // sums of the absolute terms.
  const double size = numbers::max_abs(4 * at::matmul(d.abs(), at::matmul(d.abs().t(), d.abs()) + identity));
  CHECK(rounding::agree(m.grad(), 4 * at::matmul(d, at::matmul(d.t(), d) - identity), 4 + 4 + 3, size));
  nn::ParameterList empty(at::kCPU);
  CHECK(status_of([&] { regularisers().make("orthogonal-mixing", "")->start(empty, {}); }) == 2);
}

TEST_CASE("orthogonal-mixing with matrix_source = positions is the mean over the mixing matrices of all positions",
          "[regularisers]") {
  layers::Layer layer("heads = 3\nmixer = 'mixhead-b'\n", 6);
  layer.perturb_parameters(4);
  auto term = regularisers().make("orthogonal-mixing", "");
  Config config;
  config.load_text("[r]\nweight = 0.5\nmatrix_source = 'positions'\n", "test");
  config.read("r", *term);
  term->start(layer.parameters, {});
  const at::Tensor x = layers::normal({2, 4, 6}, 1);
  layer(x, x, {}, {}, term->observer());
  const at::Tensor value = term->loss({});
  // M[b, t, j, i] = Σ_c q[b, t, j, c] W[i, c] + M0[j, i]
  const auto parameter = [&](const char* name) { return layer[name].detach().to(at::kDouble); };
  const at::Tensor q =
      (at::matmul(x.to(at::kDouble), parameter("query.weight").t()) + parameter("query.bias")).view({2, 4, 3, 2});
  const at::Tensor m = at::einsum("btjc,ic->btji", {q, parameter("mixer.query.weight")}) + parameter("mixer.matrix");
  double sum = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t k = 0; k < 3; ++k) {
          double product = i == k ? -1 : 0;
          for (int64_t j = 0; j < 3; ++j) product += m[b][t][j][i].item<double>() * m[b][t][j][k].item<double>();
          sum += product * product / 8;
        }
  // In fp32: M is computed by products of 6 and of 2 terms and two additions, MᵀM by a product of 3 terms; the mean of
  // squares adds 9 entries and 8 positions, and four more roundings follow. The term is a fourth power of M, which
  // quadruples relative errors.
  CHECK(value.item<double>() ==
        rounding::within(0.5 * sum,
                         tolerance::chain_error_bound(6 + 2 + 2 + 3 + 9 + 8 + 4, tolerance::kFp32, 4 * 0.5 * sum)));
  value.backward();
  CHECK(layer["mixer.query.weight"].grad().abs().max().item<double>() > 0);
  // A forward pass without gradients, as in a validation, adds nothing to the term.
  {
    c10::NoGradGuard no_gradient;
    layer(x, x, {}, {}, term->observer());
  }
  CHECK_FALSE(term->loss({}).defined());
}
