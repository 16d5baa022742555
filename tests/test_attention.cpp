// The attention layer against plain loops in double precision, forward and gradients; its paths against each other.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "attention/layer.h"
#include "base/error.h"
#include "reference_attention.h"

using namespace mh;
using namespace mh::attention;
using reference::Sizes;
using reference::Vector;

namespace {

Vector doubles(const at::Tensor& t) {
  at::Tensor d = t.detach().to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

double worst(const Vector& a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  double w = 0;
  for (size_t i = 0; i < a.size(); ++i) w = std::max(w, std::abs(a[i] - b[i]));
  return w;
}

struct Layer {
  model::ParameterList parameters{at::kCPU};
  AttentionOptions options;
  std::unique_ptr<AttentionLayer> layer;
  Layer(int64_t width, int64_t heads, int64_t key_size, int64_t value_size, bool bias, uint64_t seed,
        Kind kind = Kind::decoder_self) {
    options.heads = heads;
    options.head_size = key_size;
    options.value_size = value_size;
    options.bias = bias;
    // Larger than a real model's, so that attention is far from uniform.
    AttentionLayer::Inits inits{model::Init::normal(0.5), model::Init::normal(0.5), model::Init::normal(0.5)};
    layer = std::make_unique<AttentionLayer>(parameters, options, make_shape(options, kind, 0, width, "x"), inits);
    parameters.initialise(seed);
  }
  reference::Weights weights() const {
    reference::Weights w;
    for (const auto& p : parameters.all()) w[p.name().substr(2)] = doubles(p.master());
    return w;
  }
};

at::Tensor normal(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions().dtype(at::kFloat));
}

}  // namespace

TEST_CASE("attention equals plain loops over random shapes and masks") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    Sizes z{pick(1, 3), pick(1, 6), 0, pick(1, 9), pick(1, 4), pick(1, 5), pick(1, 5)};
    const bool cross = *rc::gen::arbitrary<bool>(), bias = *rc::gen::arbitrary<bool>(),
               padded = *rc::gen::arbitrary<bool>(), causal = *rc::gen::arbitrary<bool>(),
               additive = *rc::gen::arbitrary<bool>();
    z.keys = cross ? pick(1, 7) : z.queries;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(z.width, z.heads, z.key_size, z.value_size, bias, seed, cross ? Kind::decoder_cross : Kind::decoder_self);
    at::Tensor x = normal({z.batch, z.queries, z.width}, seed),
               m = cross ? normal({z.batch, z.keys, z.width}, seed + 1) : x;
    Mask mask;
    mask.causal = causal;
    mask.offset = causal ? pick(0, 2) : 0;
    mask.window = *rc::gen::arbitrary<bool>() ? pick(1, 4) : 0;
    std::vector<int64_t> lengths;
    if (padded) {
      for (int64_t b = 0; b < z.batch; ++b) lengths.push_back(pick(0, z.keys));  // 0: no key at all
      mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    if (additive) mask.additive = normal({z.batch, z.heads, z.queries, z.keys}, seed + 2);
    auto allowed = [&](int64_t b, int64_t t, int64_t s) {
      return (!causal || s <= t + mask.offset) && (mask.window == 0 || s > t + mask.offset - mask.window) &&
             (!padded || s < lengths[static_cast<size_t>(b)]);
    };
    auto add = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
      return static_cast<double>(mask.additive[b][i][t][s].item<float>());
    };
    Vector wanted = reference::attention(z, doubles(x), doubles(m), l.weights(), allowed,
                                         additive ? reference::Additive(add) : reference::Additive());
    double size = 1;
    for (double v : wanted) size = std::max(size, std::abs(v));
    for (Path path : {Path::composed, Path::automatic}) {
      l.layer->set_path(path);
      RC_ASSERT(worst(doubles(l.layer->forward(x, m, mask, {})), wanted) < 2e-5 * size);
    }
  }));
}

TEST_CASE("gradients of every parameter and input equal differences of the plain loops") {
  for (bool cross : {false, true}) {
    Sizes z{2, 4, cross ? 5 : 4, 6, 3, 2, cross ? 3 : 2};
    Layer l(z.width, z.heads, z.key_size, z.value_size, true, 5, cross ? Kind::decoder_cross : Kind::decoder_self);
    at::Tensor x = normal({z.batch, z.queries, z.width}, 7).requires_grad_(),
               m = cross ? normal({z.batch, z.keys, z.width}, 8) : x;
    at::Tensor r = normal({z.batch, z.queries, z.width}, 9);
    Mask mask;
    mask.causal = !cross;
    auto allowed = [&](int64_t, int64_t t, int64_t s) { return cross || s <= t; };
    const Vector rd = doubles(r);
    auto loss = [&](const Vector& xs, const reference::Weights& w) {
      Vector y = reference::attention(z, xs, cross ? doubles(m) : xs, w, allowed);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * rd[i];
      return sum;
    };
    for (Path path : {Path::composed, Path::automatic}) {
      l.layer->set_path(path);
      l.parameters.zero_gradients();
      x.mutable_grad() = at::Tensor();
      (l.layer->forward(x, m, mask, {}) * r).sum().backward();
      const double h = 1e-5;
      auto compare = [&](const at::Tensor& gradient, const std::function<double(size_t, double)>& shifted) {
        Vector g = doubles(gradient);
        for (size_t i = 0; i < g.size(); ++i) {
          double difference = (shifted(i, h) - shifted(i, -h)) / (2 * h);
          CHECK(g[i] == Approx(difference).margin(2e-4).epsilon(2e-4));
        }
      };
      const auto weights = l.weights();
      for (auto& p : l.parameters.all())
        compare(p.master().grad(), [&](size_t i, double step) {
          auto w = weights;
          w[p.name().substr(2)][i] += step;
          return loss(doubles(x), w);
        });
      compare(x.grad(), [&](size_t i, double step) {
        Vector xs = doubles(x);
        xs[i] += step;
        return loss(xs, weights);
      });
    }
  }
}

TEST_CASE("the fused path errs at most twice as much as the composed one") {
  Layer l(64, 4, 16, 16, true, 3);
  Sizes z{2, 48, 48, 64, 4, 16, 16};
  at::Tensor x = normal({2, 48, 64}, 4) * 0.3;
  Mask mask;
  mask.causal = true;
  Vector wanted = reference::attention(z, doubles(x), doubles(x), l.weights(),
                                       [](int64_t, int64_t t, int64_t s) { return s <= t; });
  double size = 0;
  for (double v : wanted) size = std::max(size, std::abs(v));
  l.layer->set_path(Path::composed);
  double composed = worst(doubles(l.layer->forward(x, x, mask, {})), wanted);
  l.layer->set_path(Path::fused);
  double fused = worst(doubles(l.layer->forward(x, x, mask, {})), wanted);
  CHECK(fused <= 2 * composed + 8 * size * 1.2e-7);
}

TEST_CASE("a fused path that cannot be taken names each reason") {
  Layer l(8, 2, 4, 3, true, 3);
  l.layer->set_path(Path::fused);
  at::Tensor x = normal({1, 3, 8}, 1);
  try {
    l.layer->forward(x, x, {}, {});
    FAIL("taken");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("value_size 3 differs from head_size 4") != std::string::npos);
  }
}

TEST_CASE("an observer sees probabilities that sum to 1 and may replace head outputs") {
  struct Watch : Observer {
    at::Tensor p;
    void probabilities(const Shape&, const at::Tensor& probabilities) override { p = probabilities; }
    at::Tensor head_outputs(const Shape&, const at::Tensor& z) override {
      at::Tensor out = z.clone();
      out.select(1, 1).zero_();
      return out;
    }
  } watch;
  Layer l(8, 2, 4, 4, true, 3);
  at::Tensor x = normal({2, 5, 8}, 1);
  Mask mask;
  mask.causal = true;
  at::Tensor ablated = l.layer->forward(x, x, mask, {}, nullptr, &watch);
  CHECK(watch.p.sizes() == at::IntArrayRef({2, 2, 5, 5}));
  CHECK(at::allclose(watch.p.sum(-1), at::ones({2, 2, 5})));
  CHECK(watch.p.triu(1).abs().max().item<float>() == 0);
  // The same by a head scale of 0, on either path.
  l.layer->set_head_scale(at::tensor({1.0F, 0.0F}));
  CHECK(at::allclose(l.layer->forward(x, x, mask, {}), ablated, 1e-4, 1e-6));
  l.layer->set_head_scale(at::tensor({1.0F, 0.0F, 1.0F, 0.0F}).view({2, 2}));
  CHECK(at::allclose(l.layer->forward(x, x, mask, {}), ablated, 1e-4, 1e-6));
}

TEST_CASE("permuting the heads' parameters leaves the layer as it is") {
  Layer l(12, 3, 4, 4, true, 3);
  at::Tensor x = normal({2, 5, 12}, 1);
  at::Tensor before = l.layer->forward(x, x, {}, {});
  c10::NoGradGuard no_gradient;
  for (auto& p : l.parameters.all()) {
    if (!p.traits().head_axis) continue;
    auto blocks = p.master().chunk(p.traits().heads, *p.traits().head_axis);
    p.master().copy_(at::cat({blocks[2], blocks[0], blocks[1]}, *p.traits().head_axis));
  }
  CHECK(at::allclose(l.layer->forward(x, x, {}, {}), before, 1e-4, 1e-5));
}

TEST_CASE("heads of any size: the layer padded with zero columns is the same layer") {
  // Fixhead: a layer with larger heads whose added rows and columns are zero computes the smaller one (scaled queries).
  Layer small(8, 2, 4, 4, false, 3), large(8, 2, 9, 9, false, 4);
  c10::NoGradGuard no_gradient;
  for (auto& p : large.parameters.all()) {
    const at::Tensor& from = small.parameters.find(p.name())->master();
    p.master().zero_();
    const bool output = p.name() == "x.output.weight";
    for (int64_t i = 0; i < 2; ++i) {
      auto to = p.master().narrow(output ? 1 : 0, 9 * i, 4);
      to.copy_(from.narrow(output ? 1 : 0, 4 * i, 4));
      if (p.name() == "x.query.weight") to.mul_(1.5);  // √9 / √4
    }
  }
  at::Tensor x = normal({2, 5, 8}, 1);
  CHECK(at::allclose(large.layer->forward(x, x, {}, {}), small.layer->forward(x, x, {}, {}), 1e-4, 1e-5));
}

TEST_CASE("heads that do not divide the width are refused, unless a size is given") {
  AttentionOptions options;
  options.heads = 3;
  CHECK_THROWS_AS(make_shape(options, Kind::decoder_self, 0, 8, "x"), Error);
  options.head_size = 5;
  CHECK(make_shape(options, Kind::decoder_self, 0, 8, "x").value_size == 5);
}
