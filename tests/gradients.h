// Gradients against differences: of a layer those of plain loops, of a model its own.
#pragma once

#include <c10/core/GradMode.h>

#include <functional>

#include "layers.h"
#include "model/language_model.h"

namespace layers {

// Checks the gradient of (output · r).sum() for every trained parameter and the input x against differences of
// `reference`, which is given weights and x. A parameter that does not train must have none.
inline void check_gradients(
    Layer& l, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward,
    const std::function<reference::Vector(const reference::Weights&, const reference::Vector&)>& reference) {
  using reference::Vector;
  using reference::Weights;
  at::Tensor input = x.detach().clone().requires_grad_();
  at::Tensor y = forward(input);
  at::Tensor r = numbers::normal(y.sizes().vec(), 99);
  l.parameters.zero_gradients();
  (y * r).sum().backward();
  const Vector rd = numbers::doubles(r);
  auto loss = [&](const Weights& w, const Vector& xs) {
    const Vector out = reference(w, xs);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * rd[i];
    return sum;
  };
  const double h = 1e-5;
  const Weights weights = l.weights();
  const Vector xs = numbers::doubles(input);
  auto compare = [&](const at::Tensor& gradient, size_t count, const auto& shifted) {
    const Vector g = gradient.defined() ? numbers::doubles(gradient) : Vector(count);
    for (size_t i = 0; i < count; ++i)
      CHECK(g[i] == Approx((shifted(i, h) - shifted(i, -h)) / (2 * h)).margin(3e-4).epsilon(3e-4));
  };
  for (auto& p : l.parameters.all()) {
    const std::string name = p.name().substr(2);
    INFO(name);
    if (!p.traits().trainable) {
      CHECK(!p.master().grad().defined());
      continue;
    }
    compare(p.master().grad(), weights.at(name).size(), [&](size_t i, double step) {
      Weights w = weights;
      w[name][i] += step;
      return loss(w, xs);
    });
  }
  compare(input.grad(), xs.size(), [&](size_t i, double step) {
    Vector moved = xs;
    moved[i] += step;
    return loss(weights, moved);
  });
}

}  // namespace layers

namespace models {

// Checks the gradient of `loss`, a scalar of the model, along one random way through each trained parameter.
inline void check_gradients(mh::model::LanguageModel& model, const std::function<at::Tensor()>& loss, double margin) {
  loss().backward();
  for (mh::nn::Parameter& p : model.parameters().all()) {
    INFO(p.name());
    if (!p.traits().trainable) continue;
    REQUIRE(p.master().grad().defined());
    at::manual_seed(5);
    const at::Tensor way = at::randn(p.master().sizes());
    const double slope = (p.master().grad() * way).sum().item<double>(), step = 2e-3 / way.norm().item<double>();
    c10::NoGradGuard no_gradient;
    const at::Tensor at_rest = p.master().clone();
    const auto at_distance = [&](double d) {
      p.master().copy_(at_rest + way * d);
      const double value = loss().item<double>();
      p.master().copy_(at_rest);
      return value;
    };
    CHECK((at_distance(step) - at_distance(-step)) / (2 * step) == Approx(slope).epsilon(0.02).margin(margin));
  }
}

}  // namespace models
