// The other primitive operations against double precision.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "model/ops.h"
#include "model/parameter.h"
#include "model/product.h"

using namespace mh;

namespace {

double error(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
double size_of(const at::Tensor& a) { return a.numel() == 0 ? 0 : a.to(at::kDouble).abs().max().item<double>(); }

struct Gradients {
  at::Tensor y, dx, dw, db;
};

template <class F>
Gradients run(const F& f, const at::Tensor& x0, const at::Tensor& w0, const at::Tensor& b0, const at::Tensor& dy,
              at::ScalarType type) {
  auto leaf = [&](const at::Tensor& t) { return t.defined() ? t.to(type).detach().clone().requires_grad_() : t; };
  at::Tensor x = leaf(x0), w = leaf(w0), b = leaf(b0);
  at::Tensor y = f(x, w, b);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), x.grad(), w.grad(), b.defined() ? b.grad() : b};
}

// d/dx of sum(dy * f(x)) by central differences, in double.
at::Tensor perturbed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x0,
                     const at::Tensor& dy) {
  c10::NoGradGuard guard;
  at::Tensor x = x0.detach().clone(), g = at::zeros_like(x);
  auto* p = x.data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    double old = p[i], step = 1e-5;
    p[i] = old + step;
    double up = (f(x) * dy).sum().item<double>();
    p[i] = old - step;
    double down = (f(x) * dy).sum().item<double>();
    p[i] = old;
    g.data_ptr<double>()[i] = (up - down) / (2 * step);
  }
  return g;
}

}  // namespace

TEST_CASE("linear by parameters, while decoding and else", "[ops]") {
  at::manual_seed(4);
  model::ParameterList list(at::kCPU);
  auto add = [&](const char* name, std::vector<int64_t> shape) {
    model::Parameter& p = list.add(name, std::move(shape), {{}, true, true});
    c10::NoGradGuard guard;
    p.master().normal_();
    return &p;
  };
  model::Parameter *a = add("a", {48, 32}), *b = add("b", {16, 32}), *of_a = add("of_a", {48}),
                   *of_b = add("of_b", {16});
  for (const bool bf16 : {false, true}) {
    list.set_bf16(bf16);
    list.refresh_copies();
    for (const int64_t rows : {1, 5, 64, 200}) {
      INFO(rows << " rows, bf16 " << bf16);
      const at::Tensor x = at::randn({rows, 3, 32});
      const auto joint = [&] { return model::linear(x, {a, nullptr, b}, {of_a, nullptr, of_b}); };
      const at::Tensor exact = at::linear(x.to(at::kDouble), at::cat({a->value(), b->value()}).to(at::kDouble),
                                          at::cat({of_a->value(), of_b->value()}).to(at::kDouble));
      const double bound = (bf16 ? 0x1p-6 : 0x1p-20) * size_of(exact);
      CHECK(error(joint(), exact) <= bound);
      CHECK(model::linear(x, {b}, {nullptr}).sizes() == at::IntArrayRef({rows, 3, 16}));
      c10::NoGradGuard guard;
      const model::DecodingProducts products;
      const at::Tensor first = joint();
      CHECK(error(first, exact) <= bound);
      CHECK(joint().equal(first));
      for (const auto then : {model::Activation::relu, model::Activation::gelu, model::Activation::gelu_tanh})
        CHECK(error(model::linear(x, {a, nullptr, b}, {of_a, nullptr, of_b}, then), model::activation(exact, then)) <=
              bound);
      const model::DecodingProducts same(&products);
      CHECK(joint().equal(first));
      if (bf16) continue;
      // A row is the same whatever stands beside it.
      for (const int64_t row : {int64_t{0}, rows - 1})
        CHECK(
            model::linear(x.narrow(0, row, 1), {a, nullptr, b}, {of_a, nullptr, of_b}).equal(first.narrow(0, row, 1)));
      c10::AutoGradMode on(true);
      CHECK(joint().requires_grad());  // what is kept has no gradient, so it is not taken here
    }
  }
}

TEST_CASE("linear and its gradients, fp32 and bf16", "[ops]") {
  at::manual_seed(3);
  auto ours = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return model::linear(x, w, b); };
  auto plain = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return at::linear(x, w, b); };
  for (auto [rows, in, out] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                               {3, 5, 2},
                               {64, 32, 48},
                               {257, 100, 30},
                               {1000, 64, 192},
                               {0, 4, 3}})
    for (bool with_bias : {false, true}) {
      INFO(rows << " x " << in << " -> " << out);
      at::Tensor x = at::randn({2, rows, in}), w = at::randn({out, in}), b, dy = at::randn({2, rows, out});
      if (with_bias) b = at::randn({out});
      for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        auto round = [&](const at::Tensor& t) { return t.defined() ? t.to(type).to(at::kDouble) : t; };
        Gradients exact = run(plain, round(x), round(w), round(b), round(dy), at::kDouble);
        Gradients composed = run(plain, x, w, b, dy, type);
        Gradients fast = run(ours, x, w, b, dy, type);
        double unit = type == at::kFloat ? 0x1p-21 : 0x1p-7;
        auto within = [&](const at::Tensor& mine, const at::Tensor& other, const at::Tensor& truth) {
          CHECK(mine.scalar_type() == type);
          CHECK(error(mine, truth) <= 2 * error(other, truth) + unit * size_of(truth));
        };
        within(fast.y, composed.y, exact.y);
        within(fast.dx, composed.dx, exact.dx);
        within(fast.dw, composed.dw, exact.dw);
        if (with_bias) within(fast.db, composed.db, exact.db);
      }
    }
}

TEST_CASE("linear casts its input and takes any strides", "[ops]") {
  at::Tensor w = at::randn({6, 4}), x = at::randn({4, 3, 5}).transpose(0, 2);  // (5, 3, 4), not contiguous
  CHECK(error(model::linear(x, w, {}), at::linear(x, w)) < 1e-5);
  CHECK(model::linear(x, w.to(at::kBFloat16), {}).scalar_type() == at::kBFloat16);
  CHECK(model::linear(x.to(at::kDouble), w, {}).scalar_type() == at::kFloat);
  at::Tensor leaf = at::randn({2, 4}).requires_grad_();
  at::Tensor y = model::linear(leaf, w.to(at::kBFloat16), {});
  y.sum().backward();
  CHECK(leaf.grad().scalar_type() == at::kFloat);
}

TEST_CASE("gradients by perturbation", "[ops]") {
  at::manual_seed(4);
  auto options = at::TensorOptions(at::kDouble);
  at::Tensor x = at::randn({2, 3, 6}, options), w = at::randn({4, 6}, options), b = at::randn({4}, options);
  at::Tensor gain = at::randn({6}, options), shift = at::randn({6}, options);
  auto check = [&](const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& at_point) {
    at::Tensor leaf = at_point.detach().clone().requires_grad_();
    at::Tensor y = f(leaf), dy = at::randn_like(y);
    y.backward(dy);
    CHECK(error(leaf.grad(), perturbed(f, at_point, dy)) < 1e-6);
  };
  check([&](const at::Tensor& t) { return model::linear(t, w, b); }, x);
  check([&](const at::Tensor& t) { return model::linear(x, t, b); }, w);
  check([&](const at::Tensor& t) { return model::linear(x, w, t); }, b);
  check([&](const at::Tensor& t) { return model::layer_norm(t, gain, shift, 1e-5); }, x);
  check([&](const at::Tensor& t) { return model::layer_norm(x, t, shift, 1e-5); }, gain);
  check([&](const at::Tensor& t) { return model::activation(t, model::Activation::gelu); }, x);
  check([&](const at::Tensor& t) { return model::activation(t, model::Activation::gelu_tanh); }, x);
}

TEST_CASE("layer_norm keeps its input's type and sums in fp32", "[ops]") {
  at::Tensor x = at::randn({50, 300}) * 3 + 100, gain = at::randn({300}), shift = at::randn({300});
  at::Tensor xd = x.to(at::kDouble);
  at::Tensor mean = xd.mean(1, true), variance = (xd - mean).square().mean(1, true);
  at::Tensor exact = (xd - mean) / (variance + 1e-5).sqrt() * gain + shift;
  CHECK(error(model::layer_norm(x, gain, shift, 1e-5), exact) < 1e-3);
  at::Tensor half = model::layer_norm((x - 100).to(at::kBFloat16), gain, shift, 1e-5);
  CHECK(half.scalar_type() == at::kBFloat16);
  CHECK(error(half, exact) < 0.1);
}

TEST_CASE("the norm of a sum, while decoding and else", "[ops]") {
  at::manual_seed(6);
  for (const int64_t size : {1, 2, 15, 16, 17, 48, 100, 256, 1000})
    for (const double offset : {0.0, 30.0}) {
      INFO(size << " numbers around " << offset);
      const at::Tensor x = at::randn({3, 7, size}) + offset, y = at::randn({3, 7, size}), gain = at::randn({size}),
                       shift = at::randn({size});
      const at::Tensor s = x.to(at::kDouble) + y.to(at::kDouble), centred = s - s.mean(-1, true);
      const at::Tensor exact = centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * gain + shift;
      const auto of_sum = [&] { return model::norm_of_sum(x, y, gain, shift, 1e-5); };
      c10::NoGradGuard guard;
      const at::Tensor composed = of_sum();
      CHECK(composed.equal(model::layer_norm(x + y, gain, shift, 1e-5)));
      const model::DecodingProducts products;
      CHECK(error(of_sum(), exact) <= 2 * error(composed, exact) + 0x1p-22 * (1 + offset) * size_of(exact));
      // A row is the same whatever stands beside it.
      CHECK(
          model::norm_of_sum(x.narrow(0, 2, 1), y.narrow(0, 2, 1), gain, shift, 1e-5).equal(of_sum().narrow(0, 2, 1)));
      // What bf16 products give is added to fp32, and nothing is rounded again.
      const at::Tensor half = y.to(at::kBFloat16);
      CHECK(model::norm_of_sum(x, half, gain, shift, 1e-5)
                .equal(model::norm_of_sum(x, half.to(at::kFloat), gain, shift, 1e-5)));
      c10::AutoGradMode on(true);
      CHECK(of_sum().equal(composed));
    }
}

TEST_CASE("gelu is the exact one, gelu-tanh that of GPT-2", "[ops]") {
  at::Tensor x = at::linspace(-5, 5, 101), y = model::activation(x, model::Activation::gelu);
  at::Tensor by_tanh = model::activation(x, model::Activation::gelu_tanh);
  for (int64_t i = 0; i < 101; ++i) {
    double v = x[i].item<double>();
    const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    CHECK(by_tanh[i].item<double>() == Approx(0.5 * v * (1 + std::tanh(inner))).margin(1e-6));
    CHECK(y[i].item<double>() == Approx(0.5 * v * (1 + std::erf(v / std::sqrt(2.0)))).margin(1e-6));
  }
  CHECK(at::equal(model::activation(x, model::Activation::relu), x.clamp_min(0)));
}

TEST_CASE("embedding scales, and its gradient adds up repeated tokens", "[ops]") {
  at::Tensor w = at::randn({10, 4}).requires_grad_();
  at::Tensor tokens = at::randint(10, {3, 40}, at::kLong);
  at::Tensor y = model::embedding(tokens, w, 3), dy = at::randn({3, 40, 4});
  CHECK(error(y, w.detach().index_select(0, tokens.view(-1)).view({3, 40, 4}) * 3) == 0);
  y.backward(dy);
  at::Tensor expected = at::zeros({10, 4}, at::kDouble);
  expected.index_add_(0, tokens.view(-1), dy.view({120, 4}).to(at::kDouble) * 3);
  CHECK(error(w.grad(), expected) < 1e-4);
  CHECK(model::embedding(tokens, w.detach().to(at::kBFloat16), 1).scalar_type() == at::kFloat);
}
