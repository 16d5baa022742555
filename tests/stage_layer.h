// An attention layer made from a configuration, and its comparison with plain loops: forward and by differences.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <catch2/catch.hpp>

#include "attention/layer.h"
#include "reference_attention.h"

namespace stage_test {

using reference::Vector;
using reference::Weights;

inline Vector doubles(const at::Tensor& t) {
  at::Tensor d = t.detach().to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

inline at::Tensor normal(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions().dtype(at::kFloat));
}

// Largest difference, relative to the largest number wanted.
inline double worst(const Vector& found, const Vector& wanted) {
  REQUIRE(found.size() == wanted.size());
  double difference = 0, size = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
    size = std::max(size, std::abs(wanted[i]));
  }
  return difference / size;
}

struct Layer {
  mh::model::ParameterList parameters{at::kCPU};
  mh::attention::AttentionOptions options;
  std::unique_ptr<mh::attention::AttentionLayer> layer;

  // `toml` is the section [attention] and what is below it. Parameters are larger than a real model's, so that
  // attention is far from uniform.
  Layer(const std::string& toml, int64_t width, uint64_t seed,
        mh::attention::Kind kind = mh::attention::Kind::decoder_self) {
    mh::Config config;
    config.load_text("[attention]\n" + toml, "test");
    config.read("attention", options);
    config.check_all_known();
    const auto init = mh::model::Init::normal(0.5);
    layer =
        std::make_unique<mh::attention::AttentionLayer>(parameters, options, make_shape(options, kind, 0, width, "x"),
                                                        mh::attention::AttentionLayer::Inits{init, init, init});
    parameters.initialise(seed);
    c10::NoGradGuard no_gradient;
    for (auto& p : parameters.all())
      if (p.traits().init.kind != mh::model::Init::Kind::normal || p.traits().init.a < 0.5)
        p.master().copy_(normal(p.master().sizes().vec(), seed + 17) * 0.5);
  }
  const mh::attention::Shape& shape() const { return layer->shape(); }
  Weights weights() const {
    Weights w;
    for (const auto& p : parameters.all()) w[p.name().substr(2)] = doubles(p.master());
    return w;
  }
  at::Tensor& master(const std::string& name) { return parameters.find("x." + name)->master(); }
};

// x (B, T, d) through the weight and bias of this name: (B, T, out).
inline Vector projected(const Weights& w, const std::string& name, const Vector& x, int64_t width) {
  const Vector& weight = w.at(name + ".weight");
  auto bias = w.find(name + ".bias");
  const size_t d = static_cast<size_t>(width), outs = weight.size() / d;
  Vector y(x.size() / d * outs);
  for (size_t r = 0; r < x.size() / d; ++r)
    for (size_t o = 0; o < outs; ++o) {
      double sum = bias == w.end() ? 0 : bias->second[o];
      for (size_t c = 0; c < d; ++c) sum += x[r * d + c] * weight[o * d + c];
      y[r * outs + o] = sum;
    }
  return y;
}

// Checks the gradient of (output * r).sum() for every parameter and the input x against differences of `reference`,
// which is given weights and x.
inline void check_gradients(Layer& l, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward,
                            const std::function<Vector(const Weights&, const Vector&)>& reference) {
  at::Tensor input = x.detach().clone().requires_grad_();
  at::Tensor y = forward(input);
  at::Tensor r = normal(y.sizes().vec(), 99);
  l.parameters.zero_gradients();
  (y * r).sum().backward();
  const Vector rd = doubles(r);
  auto loss = [&](const Weights& w, const Vector& xs) {
    const Vector out = reference(w, xs);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * rd[i];
    return sum;
  };
  const double h = 1e-5;
  const Weights weights = l.weights();
  const Vector xs = doubles(input);
  auto compare = [&](const at::Tensor& gradient, size_t count, const auto& shifted) {
    const Vector g = gradient.defined() ? doubles(gradient) : Vector(count);
    for (size_t i = 0; i < count; ++i)
      CHECK(g[i] == Approx((shifted(i, h) - shifted(i, -h)) / (2 * h)).margin(3e-4).epsilon(3e-4));
  };
  for (auto& p : l.parameters.all()) {
    if (!p.traits().trainable) continue;
    const std::string name = p.name().substr(2);
    INFO(name);
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

}  // namespace stage_test
