// The RMS norm and norms without bias, against plain loops in double precision and against properties of the equations.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/gradients.h"
#include "fixtures/numbers.h"
#include "fixtures/rounding.h"
#include "nn/ops.h"

using namespace mh;
using numbers::max_abs;
using numbers::Vector;
using Tensors = std::vector<at::Tensor>;

namespace {

// Returns weight ∘ x / √(mean(x²) + epsilon) (rows, size), row-major, for x (rows, size) and weight (size).
Vector rms_norm_by_loops(const Vector& x, const Vector& weight, double epsilon) {
  Vector y(x.size());
  const size_t size = weight.size();
  for (size_t r = 0; r < x.size(); r += size) {
    double mean_square = 0;
    for (size_t i = 0; i < size; ++i) mean_square += x[r + i] * x[r + i] / static_cast<double>(size);
    for (size_t i = 0; i < size; ++i) y[r + i] = weight[i] * x[r + i] / std::sqrt(mean_square + epsilon);
  }
  return y;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

at::Tensor leaf(const at::Tensor& x, at::ScalarType type) { return x.to(type).detach().clone().requires_grad_(); }

// Returns the result of `norm`, a function of x and weight, and the gradients of x and weight for the gradient dy of
// the result; x in `type`, the weight in `weight_type`.
template <class Norm>
Tensors run(const Norm& norm, const at::Tensor& x0, const at::Tensor& weight0, const at::Tensor& dy,
            at::ScalarType type, at::ScalarType weight_type) {
  const at::Tensor x = leaf(x0, type), weight = leaf(weight0, weight_type), y = norm(x, weight);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), x.grad(), weight.grad()};
}

// Returns the RMS norm by tensor operations in the wider type of x and weight, in the type of x.
at::Tensor composed_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = x.to(weight.scalar_type());
  return (wide * (wide.square().mean(-1, true) + epsilon).rsqrt() * weight).to(x.scalar_type());
}

}  // namespace

TEST_CASE("error of rms_norm and its gradients is at most twice the error of composed operations, in fp32 and bf16",
          "[ops]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t num_rows = *rc::gen::inRange(1, 200), size = *rc::gen::element(1, 2, 15, 16, 17, 48, 100, 576, 1000);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kBFloat16 : at::kFloat;
    const double scale = *rc::gen::element(1e-3, 1.0, 30.0), epsilon = *rc::gen::element(1e-6, 1e-5);
    const bool is_contiguous = *rc::gen::arbitrary<bool>();
    at::Tensor x = (at::randn({num_rows, size}) * scale).to(type), weight = at::randn({size}),
               dy = at::randn({num_rows, size}).to(type);
    if (!is_contiguous) x = x.t().contiguous().t(), dy = dy.t().contiguous().t();
    const auto norm = [&](const at::Tensor& t, const at::Tensor& w) { return nn::rms_norm(t, w, epsilon); };
    const auto composed_norm = [&](const at::Tensor& t, const at::Tensor& w) {
      return composed_rms_norm(t, w, epsilon);
    };
    const Tensors actual = run(norm, x, weight, dy, type, at::kFloat),
                  composed = run(composed_norm, x, weight, dy, type, at::kFloat),
                  exact = run(composed_norm, x, weight, dy, at::kDouble, at::kDouble);
    RC_ASSERT(actual[0].scalar_type() == type);
    RC_ASSERT(actual[1].scalar_type() == type);
    RC_ASSERT(actual[2].scalar_type() == at::kFloat);
    // Magnitudes of the terms: the terms of dx cancel in rows of one element, and dweight is a sum over rows.
    const at::Tensor xd = x.to(at::kDouble), rstd = (xd.square().mean(-1, true) + epsilon).rsqrt(),
                     terms = dy.to(at::kDouble).abs() * weight.to(at::kDouble).abs() * rstd,
                     weight_terms = (dy.to(at::kDouble) * xd * rstd).abs().sum(0);
    const std::string problem =
        numbers::find_excess_error({actual[0], actual[1]}, {composed[0], composed[1]}, {exact[0], exact[1]}, type,
                                   {exact[0], terms * static_cast<double>(size > 1 ? 2 : 3)}) +
        numbers::find_excess_error({actual[2]}, {composed[2]}, {exact[2]}, at::kFloat, {weight_terms});
    RC_LOG() << problem << "\n";
    RC_ASSERT(problem.empty());
    // The plain loops give the same result in double precision.
    RC_ASSERT(rounding::agree(
        exact[0],
        at::tensor(rms_norm_by_loops(numbers::doubles(x), numbers::doubles(weight), epsilon), at::kDouble)
            .view({num_rows, size}),
        size + 10));
    // Without gradients, and row by row, the result has the same bits.
    const c10::NoGradGuard no_gradient;
    RC_ASSERT(norm(x, weight).equal(actual[0]));
    RC_ASSERT(norm(x.narrow(0, num_rows - 1, 1), weight).equal(actual[0].narrow(0, num_rows - 1, 1)));
  }));
}

TEST_CASE("gradients of rms_norm in fp32 equal central differences of plain loops in double precision", "[ops]") {
  at::manual_seed(21);
  for (const auto& [num_rows, size] : {std::pair<int64_t, int64_t>{3, 1}, {2, 7}, {70, 5}, {2, 33}}) {
    INFO(num_rows << " rows of " << size);
    const at::Tensor x = leaf(at::randn({num_rows, size}), at::kFloat), weight = leaf(at::randn({size}), at::kFloat),
                     dy = at::randn({num_rows, size});
    nn::rms_norm(x, weight, 1e-2).backward(dy);
    const Vector xs = numbers::doubles(x), weights = numbers::doubles(weight), dys = numbers::doubles(dy);
    const double magnitude = max_abs(dy) * 10 * std::max(1.0, max_abs(weight.detach())),
                 bound = rounding::bound(at::kFloat, at::kDouble, size + num_rows + 10, magnitude);
    const auto check = [&](const at::Tensor& gradient, const Vector& values, const auto& loss) {
      layers::check_slopes(gradient, values.size(), bound, num_rows * (size + 10), [&](size_t i, double shift) {
        Vector shifted = values;
        shifted[i] += shift;
        return loss(shifted);
      });
    };
    check(x.grad(), xs, [&](const Vector& v) { return dot(rms_norm_by_loops(v, weights, 1e-2), dys); });
    check(weight.grad(), weights, [&](const Vector& v) { return dot(rms_norm_by_loops(xs, v, 1e-2), dys); });
  }
}

TEST_CASE("the RMS norm does not depend on the scale of a row, and changes its sign with the row", "[ops]") {
  const at::Tensor x = at::randn({40, 96}), weight = at::randn({96});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor row = x.to(type), y = nn::rms_norm(row, weight, 0);
    // A power of two changes no rounding.
    for (const double factor : {4.0, 0.125, -2.0})
      CHECK(nn::rms_norm(row * factor, weight, 0).equal(factor < 0 ? -y : y));
  }
  CHECK(rounding::agree(nn::rms_norm(x * 3.7, weight, 0), nn::rms_norm(x, weight, 0), 96 + 10));
}

TEST_CASE("the RMS norm equals the layer norm without bias on rows of mean 0, and differs from it on other rows",
          "[ops]") {
  at::Tensor x = at::randn({30, 64}), weight = at::randn({64});
  CHECK(!rounding::agree(nn::rms_norm(x + 1, weight, 1e-5), nn::layer_norm(x + 1, weight, {}, 1e-5), 64 + 10));
  x = x - x.mean(-1, true);
  const at::Tensor y = nn::rms_norm(x, weight, 1e-5);
  CHECK(rounding::agree(y, nn::layer_norm(x, weight, {}, 1e-5), 64 + 10));
  CHECK(rounding::agree(y, nn::layer_norm(x, weight, at::zeros({64}), 1e-5), 64 + 10));
}

TEST_CASE("a layer norm without bias equals the layer norm with bias 0, in fp32 and bf16, with its gradients",
          "[ops]") {
  at::manual_seed(22);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({50, 33}), weight = at::randn({33}), dy = at::randn({50, 33});
    const auto results = [&](const at::Tensor& bias) {
      return run([&](const at::Tensor& t, const at::Tensor& w) { return nn::layer_norm(t, w, bias, 1e-5); }, x, weight,
                 dy, type, at::kFloat);
    };
    const Tensors actual = results({}), expected = results(at::zeros({33}));
    for (size_t i = 0; i < expected.size(); ++i) CHECK(rounding::agree(actual[i], expected[i], 2));
  }
}

TEST_CASE("the fused sum of a norm without bias has the bits of the norm alone, and of bias 0", "[ops]") {
  const at::Tensor x = at::randn({3, 70, 40}), weight = at::randn({40}), zeros = at::zeros_like(x);
  const nn::DropoutArguments drop{0, {}, "place", 0};
  CHECK(nn::norm_of_sum(x, zeros, drop, {weight, {}, 1e-5, nn::NormType::rms}).equal(nn::rms_norm(x, weight, 1e-5)));
  CHECK(nn::norm_of_sum(x, zeros, drop, {weight, {}, 1e-5})
            .equal(nn::norm_of_sum(x, zeros, drop, {weight, at::zeros({40}), 1e-5})));
}

TEST_CASE("apply_norm computes the norm of its type", "[ops]") {
  const at::Tensor x = at::randn({4, 20}), weight = at::randn({20}), bias = at::randn({20});
  CHECK(nn::apply_norm(x, {weight, bias, 1e-3}).equal(nn::layer_norm(x, weight, bias, 1e-3)));
  CHECK(nn::apply_norm(x, {weight, {}, 1e-3, nn::NormType::rms}).equal(nn::rms_norm(x, weight, 1e-3)));
}

TEST_CASE("the RMS norm of a zero row is zero with finite gradients, and NaN stays in its row", "[ops]") {
  at::Tensor x = at::randn({3, 20});
  x[1].zero_();
  const at::Tensor leaf_x = leaf(x, at::kFloat), weight = leaf(at::ones({20}), at::kFloat),
                   y = nn::rms_norm(leaf_x, weight, 1e-6);
  CHECK(y[1].eq(0).all().item<bool>());
  y.sum().backward();
  CHECK(at::isfinite(leaf_x.grad()).all().item<bool>());
  x[2][3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor with_nan = nn::rms_norm(x, weight.detach(), 1e-6);
  CHECK(with_nan[2].isnan().all().item<bool>());
  CHECK(with_nan.narrow(0, 0, 2).equal(y.detach().narrow(0, 0, 2)));
}

TEST_CASE("the RMS norm and its gradients do not depend on the number of threads", "[ops]") {
  const at::Tensor x = at::randn({1000, 72}), weight = at::randn({72}), dy = at::randn({1000, 72});
  const int initial_num_threads = at::get_num_threads();
  const auto results = [&](int num_threads) {
    at::set_num_threads(num_threads);
    return run([](const at::Tensor& t, const at::Tensor& w) { return nn::rms_norm(t, w, 1e-5); }, x, weight, dy,
               at::kFloat, at::kFloat);
  };
  const Tensors one = results(1), three = results(3);
  at::set_num_threads(initial_num_threads);
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(three[i]));
}

TEST_CASE("types without a kernel, and tensors without rows, keep their type and shape in rms_norm", "[ops]") {
  const at::Tensor x = at::randn({5, 24}), weight = at::randn({24});
  const at::Tensor expected = composed_rms_norm(x.to(at::kDouble), weight.to(at::kDouble), 1e-5);
  const at::Tensor in_double = nn::rms_norm(x.to(at::kDouble), weight.to(at::kDouble), 1e-5);
  CHECK(in_double.scalar_type() == at::kDouble);
  CHECK(rounding::agree(in_double, expected, 24 + 10));
  const at::Tensor in_half = nn::rms_norm(x.to(at::kHalf), weight, 1e-5);
  CHECK(in_half.scalar_type() == at::kHalf);
  CHECK(rounding::agree(in_half, expected, 3));  // x, and the result, are rounded to fp16
  CHECK(nn::rms_norm(at::empty({0, 24}), weight, 1e-5).sizes() == at::IntArrayRef({0, 24}));
}
