// Sigsoftmax against its equation, and layers with Sigsoftmax against a naive reference.
#include <catch2/catch.hpp>

#include "attention/masked_softmax.h"
#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using numbers::close;
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
  CHECK(close(p, at::softmax(2 * a - at::softplus(a), -1), 1e-6));
  CHECK(!close(masked_sigmoid_softmax(a + 2, {}), p, 1e-3));
  CHECK(close(masked_softmax(a + 2, {}), masked_softmax(a, {}), 1e-6));
  // Gradient against finite differences in double precision.
  const at::Tensor x = normal({1, 1, 1, 6}, 2).to(at::kDouble).requires_grad_(), r = normal({1, 1, 1, 6}, 3);
  auto loss = [&](const at::Tensor& logits) { return (masked_sigmoid_softmax(logits, {}) * r).sum(); };
  loss(x).backward();
  for (int64_t i = 0; i < 6; ++i) {
    at::Tensor step = at::zeros({6}, at::kDouble);
    step[i] = 1e-5;
    const double d = ((loss(x.detach() + step) - loss(x.detach() - step)) / 2e-5).item<double>();
    CHECK(x.grad().flatten()[i].item<double>() == Approx(d).margin(1e-8));
  }
}
