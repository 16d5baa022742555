// Gated activations and their gradients, against plain loops in double precision and against properties of the
// equations.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/gradients.h"
#include "fixtures/numbers.h"
#include "fixtures/peak_memory.h"
#include "fixtures/rounding.h"
#include "fixtures/skip.h"
#include "nn/ops.h"
#include "nn/parameter.h"
#include "nn/product.h"

using namespace mh;
using nn::Activation;
using numbers::max_abs;
using numbers::Vector;
using Tensors = std::vector<at::Tensor>;

namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                       Activation::silu};

double activation_of(double v, Activation kind) {
  switch (kind) {
    case Activation::none:
      return v;
    case Activation::relu:
      return std::max(0.0, v);
    case Activation::gelu:
      return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    case Activation::silu:
      return v * numbers::sigmoid(v);
  }
  return v;
}

// Returns activation(gate) ∘ up (rows, size), row-major, for x (rows, 2 size) = [gate, up].
Vector gated_activation_by_loops(const Vector& x, size_t size, Activation kind) {
  Vector y;
  for (size_t r = 0; r < x.size(); r += 2 * size)
    for (size_t i = 0; i < size; ++i) y.push_back(activation_of(x[r + i], kind) * x[r + size + i]);
  return y;
}

at::Tensor by_loops(const at::Tensor& x, Activation kind) {
  const int64_t size = x.size(-1) / 2;
  return at::tensor(gated_activation_by_loops(numbers::doubles(x), static_cast<size_t>(size), kind), at::kDouble)
      .view({-1, size});
}

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(); }

// Returns activation(gate) ∘ up by tensor operations.
at::Tensor composed(const at::Tensor& x, Activation kind) {
  const int64_t size = x.size(-1) / 2;
  return nn::activation(x.narrow(-1, 0, size), kind) * x.narrow(-1, size, size);
}

// Returns the result of `function` for a leaf x, and the gradient of x for the gradient dy of the result.
template <class Function>
Tensors run(const Function& function, const at::Tensor& x0, const at::Tensor& dy) {
  const at::Tensor x = leaf(x0), y = function(x);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), x.grad()};
}

}  // namespace

TEST_CASE("error of gated_activation and its gradient is at most twice the error of composed operations", "[ops]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t num_rows = *rc::gen::inRange(1, 9), size = *rc::gen::element(1, 2, 15, 16, 17, 48, 100, 1000, 16500);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kBFloat16 : at::kFloat;
    const auto kind = *rc::gen::elementOf(std::vector<Activation>(std::begin(kActivations), std::end(kActivations)));
    const double scale = *rc::gen::element(0.1, 1.0, 4.0);
    const bool is_contiguous = *rc::gen::arbitrary<bool>();
    at::Tensor x = (at::randn({num_rows, 2 * size}) * scale).to(type);
    if (!is_contiguous) x = x.t().contiguous().t();
    const at::Tensor dy = at::randn({num_rows, size}).to(type);
    const auto fused = [&](const at::Tensor& t) { return nn::gated_activation(t, kind); };
    const auto by_operations = [&](const at::Tensor& t) { return composed(t, kind); };
    const Tensors actual = run(fused, x, dy), expected = run(by_operations, x, dy),
                  exact = run(by_operations, x.to(at::kDouble), dy.to(at::kDouble));
    RC_ASSERT(actual[0].scalar_type() == type);
    RC_ASSERT(actual[1].scalar_type() == type);
    // Terms: the slopes of all activations, and the parts of a slope that cancel, are below 2.
    const at::Tensor gate = x.narrow(1, 0, size).to(at::kDouble), up = x.narrow(1, size, size).to(at::kDouble),
                     gradient = dy.to(at::kDouble);
    const std::string problem = numbers::find_excess_error(
        actual, expected, exact, type, {gate * up, nn::cat({gradient * up * 2, gradient * gate}, 1)});
    RC_LOG() << "activation " << static_cast<int>(kind) << ": " << problem << "\n";
    RC_ASSERT(problem.empty());
    RC_ASSERT(rounding::agree(exact[0], by_loops(x, kind), 20, max_abs(gate * up)));
    const c10::NoGradGuard no_gradient;
    RC_ASSERT(fused(x).equal(actual[0]));
    RC_ASSERT(fused(x.narrow(0, num_rows - 1, 1)).equal(actual[0].narrow(0, num_rows - 1, 1)));
  }));
}

TEST_CASE("gradients of gated_activation equal central differences of plain loops, in fp32 and double", "[ops]") {
  at::manual_seed(31);
  for (const Activation kind : kActivations)
    for (const auto type : {at::kFloat, at::kDouble}) {
      INFO("activation " << static_cast<int>(kind) << ", " << type);
      at::Tensor x0 = at::randn({3, 2 * 19}).to(type) * 2;
      // ReLU has no derivative at 0, which the differences must not reach.
      if (kind == Activation::relu) x0 = at::where(x0.abs() < 0.01, at::full_like(x0, 0.5), x0);
      const at::Tensor x = leaf(x0), dy = at::randn({3, 19}).to(type);
      nn::gated_activation(x, kind).backward(dy);
      const Vector values = numbers::doubles(x0), dys = numbers::doubles(dy);
      const double magnitude = 2 * max_abs(dy) * max_abs(x0);
      layers::check_slopes(
          x.grad(), values.size(), type == at::kDouble ? 0 : rounding::bound(type, at::kDouble, 20, magnitude), 60,
          [&](size_t i, double shift) {
            Vector shifted = values;
            shifted[i] += shift;
            const Vector y = gated_activation_by_loops(shifted, 19, kind);
            double loss = 0;
            for (size_t j = 0; j < y.size(); ++j) loss += y[j] * dys[j];
            return loss;
          },
          19 * magnitude);
    }
}

TEST_CASE("a gated activation with a constant gate is linear in the other half", "[ops]") {
  const at::Tensor up = at::randn({6, 50});
  const auto with_gate = [&](double gate, const at::Tensor& values, Activation kind) {
    return nn::gated_activation(nn::cat({at::full_like(values, gate), values}, 1), kind);
  };
  for (const Activation kind : {Activation::none, Activation::relu}) CHECK(with_gate(1, up, kind).equal(up));
  for (const Activation kind : kActivations) {
    const at::Tensor y = with_gate(0.8, up, kind);
    CHECK(with_gate(0.8, up * 4, kind).equal(y * 4));
    CHECK(rounding::agree(with_gate(0.8, up + up.flip(0), kind), y + y.flip(0), 3, 4 * max_abs(y)));
    CHECK(with_gate(0, up, kind).eq(0).all().item<bool>());
  }
}

TEST_CASE("a gated product in decoding equals the product in training, with the same bits for any number of rows",
          "[ops]") {
  const c10::NoGradGuard no_gradient;
  at::manual_seed(32);
  for (const bool bf16 : {false, true})
    for (const bool has_bias : {false, true}) {
      INFO("bf16 " << bf16 << ", bias " << has_bias);
      nn::ParameterList list(at::kCPU);
      const auto add = [&](const char* name, std::vector<int64_t> shape) {
        nn::Parameter* p = &list.add(name, std::move(shape), {{}, true, true});
        p->master().normal_();
        return p;
      };
      nn::Parameter *gate = add("gate", {48, 32}), *up = add("up", {48, 32});
      nn::Parameter *gate_bias = has_bias ? add("gate_bias", {48}) : nullptr,
                    *up_bias = has_bias ? add("up_bias", {48}) : nullptr;
      list.use_bf16_copies(bf16);
      list.refresh_bf16_copies();
      const at::Tensor x = at::randn({70, 32});
      const auto gated_product = [&](const at::Tensor& rows) {
        return nn::gated_activation(nn::linear(rows, {gate, up}, {gate_bias, up_bias}), Activation::silu);
      };
      const at::Tensor expected = gated_product(x);
      const nn::DecodingProducts products;
      const at::Tensor y = gated_product(x);
      CHECK(rounding::agree(y, expected, 32 + 20, 4 * max_abs(expected)));
      for (const int64_t num_rows : {1, 5, 64})
        CHECK(gated_product(x.narrow(0, 3, num_rows)).equal(y.narrow(0, 3, num_rows)));
    }
}

TEST_CASE("large gates pass or block the other half, and NaN stays in its element", "[ops]") {
  for (const Activation kind : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const double gate : {40.0, 1000.0, 1e6}) {
        INFO("activation " << static_cast<int>(kind) << ", " << type << ", gate " << gate);
        const at::Tensor ones = at::ones({1, 20}).to(type), x = leaf(nn::cat({ones * gate, ones}, 1)),
                         minus_x = leaf(nn::cat({ones * -gate, ones}, 1));
        // Of all activations, SiLU approaches 0 most slowly: |x σ(-x)| <= x e^-x, and its slope is at most (1 + x)
        // e^-x. The factor 2 is larger than the errors of the exponential and of rounding to bf16.
        const double blocked_bound = 2 * (1 + gate) * std::exp(-gate);
        const at::Tensor y = nn::gated_activation(x, kind), blocked = nn::gated_activation(minus_x, kind);
        CHECK(y.detach().equal(ones * gate));
        CHECK(max_abs(blocked.detach()) <= blocked_bound);
        y.sum().backward(), blocked.sum().backward();
        CHECK(x.grad().equal(nn::cat({ones, ones * gate}, 1)));
        CHECK(max_abs(minus_x.grad()) <= blocked_bound);
      }
  for (const Activation kind : kActivations) {
    at::Tensor x = at::ones({2, 40});
    x[1][3] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor is_nan = nn::gated_activation(x, kind).isnan();
    CHECK(is_nan[1][3].item<bool>());
    CHECK(is_nan.sum().item<int64_t>() == 1);
  }
}

TEST_CASE("gated_activation does not depend on the number of threads and keeps leading axes", "[ops]") {
  const at::Tensor x = at::randn({4, 3, 2 * 20000}), dy = at::randn({4, 3, 20000});
  const int initial_num_threads = at::get_num_threads();
  const auto results = [&](int num_threads) {
    at::set_num_threads(num_threads);
    return run([](const at::Tensor& t) { return nn::gated_activation(t, Activation::silu); }, x, dy);
  };
  const Tensors one = results(1), three = results(3);
  at::set_num_threads(initial_num_threads);
  CHECK(one[0].sizes() == at::IntArrayRef({4, 3, 20000}));
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(three[i]));
  CHECK(nn::gated_activation(at::empty({0, 8}), Activation::silu).sizes() == at::IntArrayRef({0, 4}));
}

TEST_CASE("the forward pass of gated_activation allocates its result alone", "[ops]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const at::Tensor x = at::ones({1024, 2 * 16384}).requires_grad_();  // 128 MiB
  reset_peak_memory();
  const int64_t initial_kb = peak_memory_kb();
  const at::Tensor y = nn::gated_activation(x, Activation::silu);  // 64 MiB
  CHECK(y.requires_grad());
  CHECK(peak_memory_kb() - initial_kb < 80 * 1024);
}
