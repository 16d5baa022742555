// Sigsoftmax against its equation, and layers with Sigsoftmax against a naive reference.
#include "attention/methods/sigsoftmax/sigsoftmax.h"

#include <catch2/catch.hpp>

#include "attention/masked_softmax.h"
#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using numbers::normal;

TEST_CASE("layers with Sigsoftmax and their gradients match a naive reference", "[sigsoftmax]") {
  const std::vector<layers::MixingCase> cases{{"normaliser = 'sigsoftmax'"}};
  layers::check_mixing(cases);
  layers::check_gradients_of_mixing(cases);
}

TEST_CASE("Sigsoftmax equals softmax(2a - softplus(a)) and, unlike softmax, depends on a constant offset",
          "[sigsoftmax]") {
  const at::Tensor a = normal({2, 3, 4, 20}, 1) * 3;
  const at::Tensor p = masked_sigmoid_softmax(a, {});
  // A row of the softmax adds up 20 terms. An error ε of the logits, which are at most 2 |a|, changes a probability
  // by at most ε / 2.
  auto agree = [&](const at::Tensor& actual, const at::Tensor& expected) {
    return rounding::agree(actual, expected, 20 + layers::kElementwiseRoundings, numbers::max_abs(a));
  };
  CHECK(agree(p, at::softmax(2 * a - at::softplus(a), -1)));
  CHECK(!agree(masked_sigmoid_softmax(a + 2, {}), p));
  CHECK(agree(masked_softmax(a + 2, {}), masked_softmax(a, {})));
  // Gradient against finite differences in double precision.
  const at::Tensor x = normal({1, 1, 1, 6}, 2).to(at::kDouble).requires_grad_(), r = normal({1, 1, 1, 6}, 3);
  auto loss = [&](const at::Tensor& logits) { return (masked_sigmoid_softmax(logits, {}) * r).sum(); };
  loss(x).backward();
  const auto shifted_loss = [&](size_t i, double step) {
    at::Tensor shifted = x.detach().clone();
    shifted.view({-1})[static_cast<int64_t>(i)].add_(step);
    return loss(shifted).item<double>();
  };
  layers::check_slopes(x.grad(), 6, 0, 6 + layers::kElementwiseRoundings + 6, shifted_loss, numbers::max_abs(r), 1e-4);
}
