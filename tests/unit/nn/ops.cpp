// Linear, norms, add_and_norm, activations and embedding against double precision.
#include "nn/ops.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/gradients.h"
#include "fixtures/numbers.h"
#include "fixtures/rounding.h"
#include "nn/parameter.h"
#include "nn/product.h"

using namespace mh;
using numbers::error;
using numbers::max_abs;

namespace {

struct Results {
  at::Tensor y, dx, dw, db;
};

// Runs f(x, w, b) and its backward pass in `type`, and returns the output and the gradients.
template <class F>
Results run(const F& f, const at::Tensor& x0, const at::Tensor& w0, const at::Tensor& b0, const at::Tensor& dy,
            at::ScalarType type) {
  auto leaf = [&](const at::Tensor& t) { return t.defined() ? t.to(type).detach().clone().requires_grad_() : t; };
  at::Tensor x = leaf(x0), w = leaf(w0), b = leaf(b0);
  at::Tensor y = f(x, w, b);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), x.grad(), w.grad(), b.defined() ? b.grad() : b};
}

// Checks `gradient` against central differences of sum(dy ∘ f(x)), all in double precision. f adds up at most 2
// x.numel() terms and has at most 20 other operations; sum() adds dy.numel() terms.
void check_slopes(const at::Tensor& gradient, const std::function<at::Tensor(const at::Tensor&)>& f,
                  const at::Tensor& x0, const at::Tensor& dy) {
  c10::NoGradGuard guard;
  at::Tensor x = x0.detach().clone();
  auto* p = x.data_ptr<double>();
  const int64_t num_roundings = 2 * x.numel() + dy.numel() + 20;
  const double term_magnitude = (f(x) * dy).abs().sum().item<double>();
  const auto shifted_sum = [&](size_t i, double step) {
    const double x_i = p[i];
    p[i] = x_i + step;
    const double sum = (f(x) * dy).sum().item<double>();
    p[i] = x_i;
    return sum;
  };
  layers::check_slopes(gradient, static_cast<size_t>(x.numel()), 0, num_roundings, shifted_sum, term_magnitude);
}

}  // namespace

TEST_CASE("linear over several parameters is exact within rounding, in training and in decoding with activations",
          "[ops]") {
  at::manual_seed(4);
  nn::ParameterList list(at::kCPU);
  auto add = [&](const char* name, std::vector<int64_t> shape) {
    nn::Parameter& p = list.add(name, std::move(shape), {{}, true, true});
    c10::NoGradGuard guard;
    p.master().normal_();
    return &p;
  };
  nn::Parameter *weight_a = add("weight_a", {48, 32}), *weight_b = add("weight_b", {16, 32}),
                *bias_a = add("bias_a", {48}), *bias_b = add("bias_b", {16});
  for (const bool bf16 : {false, true}) {
    list.use_bf16_copies(bf16);
    list.refresh_bf16_copies();
    for (const int64_t num_rows : {1, 5, 64, 200}) {
      INFO(num_rows << " rows, bf16 " << bf16);
      const at::Tensor x = at::randn({num_rows, 3, 32});
      const auto joint_linear = [&] { return nn::linear(x, {weight_a, nullptr, weight_b}, {bias_a, nullptr, bias_b}); };
      const at::Tensor weight = nn::cat({weight_a->value(), weight_b->value()}),
                       bias = nn::cat({bias_a->value(), bias_b->value()});
      const at::Tensor exact = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble)),
                       composed = at::linear(x.to(weight.scalar_type()), weight, bias.to(weight.scalar_type()));
      const auto excess_error = [&](const at::Tensor& actual, const at::Tensor& composed_result,
                                    const at::Tensor& exact_result) {
        return numbers::find_excess_error({actual}, {composed_result}, {exact_result}, weight.scalar_type());
      };
      CHECK(excess_error(joint_linear(), composed, exact) == "");
      CHECK(nn::linear(x, {weight_b}, {nullptr}).sizes() == at::IntArrayRef({num_rows, 3, 16}));
      c10::NoGradGuard guard;
      const nn::DecodingProducts products;
      const at::Tensor first = joint_linear();
      CHECK(excess_error(first, composed, exact) == "");
      CHECK(joint_linear().equal(first));
      for (const auto activation :
           {nn::Activation::relu, nn::Activation::gelu, nn::Activation::gelu_tanh, nn::Activation::silu})
        CHECK(excess_error(nn::linear(x, {weight_a, nullptr, weight_b}, {bias_a, nullptr, bias_b}, activation),
                           nn::activation(composed, activation), nn::activation(exact, activation)) == "");
      const nn::DecodingProducts nested_products(&products);
      CHECK(joint_linear().equal(first));
      // A row does not depend on the other rows.
      for (const int64_t row : {int64_t{0}, num_rows - 1})
        CHECK(nn::linear(x.narrow(0, row, 1), {weight_a, nullptr, weight_b}, {bias_a, nullptr, bias_b})
                  .equal(first.narrow(0, row, 1)));
      c10::AutoGradMode gradient_mode(true);
      CHECK(
          joint_linear().requires_grad());  // cached weights have no gradient and are not used if gradients are enabled
    }
  }
}

TEST_CASE("the bits of a decoding product depend neither on the number of rows nor on the number of threads", "[ops]") {
  c10::NoGradGuard no_gradient;
  at::manual_seed(5);
  const int initial_num_threads = at::get_num_threads();
  // With few columns, a long sum and two threads, oneDNN divides the sum between the threads.
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1024, 128}, {128, 1024}, {512, 512}, {2048, 512}})
    for (const bool bf16 : {false, true}) {
      nn::ParameterList list(at::kCPU);
      nn::Parameter& weight = list.add("weight", {out, in}, {{}, true, true});
      weight.master().normal_();
      list.use_bf16_copies(bf16);
      list.refresh_bf16_copies();
      const nn::DecodingProducts products;
      const at::Tensor x = at::randn({330, in});
      at::set_num_threads(1);
      const at::Tensor output_of_all_rows = nn::linear(x, {&weight}, {nullptr});
      for (const int num_threads : {1, 2, 3})
        for (const int64_t num_rows : {1, 17, 63, 64, 65, 129, 330}) {
          INFO(in << " -> " << out << (bf16 ? ", bf16, " : ", fp32, ") << num_rows << " rows, " << num_threads
                  << " threads");
          at::set_num_threads(num_threads);
          const int64_t first = (330 - num_rows) / 2;
          const auto product = [&] { return nn::linear(x.narrow(0, first, num_rows), {&weight}, {nullptr}); };
          const at::Tensor expected = output_of_all_rows.narrow(0, first, num_rows);
          CHECK(product().equal(expected));
          const nn::DecodingProducts products_of_threads(nullptr);  // weights cached with this number of threads
          CHECK(product().equal(expected));
        }
      at::set_num_threads(initial_num_threads);
    }
}

TEST_CASE("error of nn::linear and its gradients is at most twice the error of at::linear, in fp32 and bf16", "[ops]") {
  at::manual_seed(3);
  auto nn_linear = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return nn::linear(x, w, b); };
  auto torch_linear = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return at::linear(x, w, b); };
  for (auto [num_rows, in, out] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                   {3, 5, 2},
                                   {64, 32, 48},
                                   {257, 100, 30},
                                   {1000, 64, 192},
                                   {0, 4, 3}})
    for (bool with_bias : {false, true}) {
      INFO(num_rows << " x " << in << " -> " << out);
      at::Tensor x = at::randn({2, num_rows, in}), w = at::randn({out, in}), b, dy = at::randn({2, num_rows, out});
      if (with_bias) b = at::randn({out});
      for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        auto round = [&](const at::Tensor& t) { return t.defined() ? t.to(type).to(at::kDouble) : t; };
        Results exact = run(torch_linear, round(x), round(w), round(b), round(dy), at::kDouble);
        Results composed = run(torch_linear, x, w, b, dy, type);
        Results actual = run(nn_linear, x, w, b, dy, type);
        auto check_within = [&](const at::Tensor& result, const at::Tensor& composed_result,
                                const at::Tensor& exact_result) {
          CHECK(result.scalar_type() == type);
          CHECK(numbers::find_excess_error({result}, {composed_result}, {exact_result}, type) == "");
        };
        check_within(actual.y, composed.y, exact.y);
        check_within(actual.dx, composed.dx, exact.dx);
        check_within(actual.dw, composed.dw, exact.dw);
        if (with_bias) check_within(actual.db, composed.db, exact.db);
      }
    }
}

TEST_CASE("linear casts its input to the type of the weight and accepts any strides", "[ops]") {
  at::Tensor w = at::randn({6, 4}), x = at::randn({4, 3, 5}).transpose(0, 2);  // (5, 3, 4), not contiguous
  // Sums of 4 products.
  CHECK(rounding::agree(nn::linear(x, w, {}), at::linear(x, w), 4, max_abs(at::linear(x.abs(), w.abs()))));
  CHECK(nn::linear(x, w.to(at::kBFloat16), {}).scalar_type() == at::kBFloat16);
  CHECK(nn::linear(x.to(at::kDouble), w, {}).scalar_type() == at::kFloat);
  at::Tensor leaf = at::randn({2, 4}).requires_grad_();
  at::Tensor y = nn::linear(leaf, w.to(at::kBFloat16), {});
  y.sum().backward();
  CHECK(leaf.grad().scalar_type() == at::kFloat);
}

TEST_CASE("gradients of linear, norms, GELU and SiLU equal central differences", "[ops]") {
  at::manual_seed(4);
  auto options = at::TensorOptions(at::kDouble);
  at::Tensor x = at::randn({2, 3, 6}, options), w = at::randn({4, 6}, options), b = at::randn({4}, options);
  at::Tensor gain = at::randn({6}, options), shift = at::randn({6}, options);
  auto check_gradient = [&](const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x0) {
    at::Tensor leaf = x0.detach().clone().requires_grad_();
    at::Tensor y = f(leaf), dy = at::randn_like(y);
    y.backward(dy);
    check_slopes(leaf.grad(), f, x0, dy);
  };
  check_gradient([&](const at::Tensor& t) { return nn::linear(t, w, b); }, x);
  check_gradient([&](const at::Tensor& t) { return nn::linear(x, t, b); }, w);
  check_gradient([&](const at::Tensor& t) { return nn::linear(x, w, t); }, b);
  check_gradient([&](const at::Tensor& t) { return nn::layer_norm(t, gain, shift, 1e-5); }, x);
  check_gradient([&](const at::Tensor& t) { return nn::layer_norm(x, t, shift, 1e-5); }, gain);
  check_gradient([&](const at::Tensor& t) { return nn::layer_norm(t, gain, {}, 1e-5); }, x);
  check_gradient([&](const at::Tensor& t) { return nn::rms_norm(t, gain, 1e-5); }, x);
  check_gradient([&](const at::Tensor& t) { return nn::rms_norm(x, t, 1e-5); }, gain);
  for (const auto kind : {nn::Activation::gelu, nn::Activation::gelu_tanh, nn::Activation::silu})
    check_gradient([&](const at::Tensor& t) { return nn::activation(t, kind); }, x);
}

TEST_CASE("layer_norm preserves the type of its input and accumulates in fp32", "[ops]") {
  at::Tensor x = at::randn({50, 300}) * 3 + 100, gain = at::randn({300}), shift = at::randn({300});
  for (const at::Tensor& input : {x, (x - 100).to(at::kBFloat16)}) {
    const at::Tensor xd = input.to(at::kDouble), centred = xd - xd.mean(1, true),
                     deviation = (centred.square().mean(1, true) + 1e-5).sqrt();
    const at::Tensor y = nn::layer_norm(input, gain, shift, 1e-5);
    CHECK(y.scalar_type() == input.scalar_type());
    const at::Tensor composed = (input - input.to(at::kFloat).mean(1, true)) / deviation.to(at::kFloat) * gain + shift;
    // The bound is relative to terms of magnitude |x| / deviation · |gain|, which cancel when the mean, about 100 or 0,
    // is subtracted from x.
    CHECK(numbers::find_excess_error({y}, {composed}, {centred / deviation * gain + shift}, y.scalar_type(),
                                     {xd / deviation * max_abs(gain)}) == "");
  }
}

namespace {

// Returns the layer norm or RMS norm of s (…, d) in the type of s, by tensor operations.
at::Tensor composed_norm(const at::Tensor& s, const nn::NormArguments& norm) {
  const at::Tensor centred = norm.type == nn::NormType::rms ? s : s - s.mean(-1, true);
  const at::Tensor n = centred / (centred.square().mean(-1, true) + norm.epsilon).sqrt() * norm.weight;
  return norm.bias.defined() ? n + norm.bias : n;
}

}  // namespace

TEST_CASE("add_and_norm and its gradients equal dropout, sum and norm in double precision", "[ops]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t num_rows = *rc::gen::inRange(1, 4), length = *rc::gen::inRange(1, 70);
    const int64_t size = *rc::gen::element(1, 2, 15, 16, 17, 48, 100, 256, 1000);
    const bool bf16 = *rc::gen::arbitrary<bool>(), with_sum = *rc::gen::arbitrary<bool>(),
               in_training = *rc::gen::arbitrary<bool>();
    const double offset = *rc::gen::element(0.0, 30.0), p = *rc::gen::element(0.0, 0.3);
    const auto norm_type = *rc::gen::element(nn::NormType::layer, nn::NormType::rms);
    const bool has_bias = norm_type == nn::NormType::layer && *rc::gen::arbitrary<bool>();
    const nn::ForwardContext forward_context{in_training, 3, 5, *rc::gen::inRange(0, 9),
                                             *rc::gen::element(nn::DropoutIndex::position, nn::DropoutIndex::padded)};
    const nn::DropoutArguments drop{p, forward_context, "place", 2};
    const auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
    const at::Tensor x0 = at::randn({num_rows, length, size}) + offset,
                     y0 = at::randn({num_rows, length, size}).to(bf16 ? at::kBFloat16 : at::kFloat);
    const nn::NormArguments norm0{at::randn({size}), has_bias ? at::randn({size}) : at::Tensor(), 1e-5, norm_type};
    // Returns the arguments of the norm with leaves of `type`.
    const auto norm_leaves = [&](at::ScalarType type) {
      nn::NormArguments norm = norm0;
      for (at::Tensor* t : {&norm.weight, &norm.bias})
        if (t->defined()) *t = leaf(t->to(type));
      return norm;
    };
    const at::Tensor dsum = at::randn_like(x0), dnorm = at::randn_like(x0);
    const at::Tensor dropout_mask = nn::dropout(at::ones_like(x0), p, forward_context, "place", 2).to(at::kDouble);
    const auto results = [&](const at::Tensor& x, const at::Tensor& y, const nn::NormArguments& norm,
                             const nn::SumAndNorm& result) {
      const at::Tensor norm_loss = (result.norm * dnorm.to(result.norm.scalar_type())).sum();
      (with_sum ? norm_loss + (result.sum * dsum.to(result.sum.scalar_type())).sum() : norm_loss).backward();
      std::vector<at::Tensor> tensors{result.sum.detach(), result.norm.detach(), x.grad(), y.grad(),
                                      norm.weight.grad()};
      if (has_bias) tensors.push_back(norm.bias.grad());
      return tensors;
    };
    const at::Tensor xd = leaf(x0.to(at::kDouble)), yd = leaf(y0.to(at::kDouble)), s = xd + yd * dropout_mask;
    const nn::NormArguments norm_double = norm_leaves(at::kDouble);
    const auto exact = results(xd, yd, norm_double, {s, composed_norm(s, norm_double)});
    const at::Tensor xc = leaf(x0), yc = leaf(y0), sum = xc + yc * dropout_mask.to(at::kFloat);
    const nn::NormArguments norm_composed = norm_leaves(at::kFloat);
    const auto composed = results(
        xc, yc, norm_composed,
        {sum, norm_type == nn::NormType::rms
                  ? composed_norm(sum, norm_composed)
                  : at::layer_norm(sum, {size}, norm_composed.weight, norm_composed.bias, norm_composed.epsilon)});
    const at::Tensor x = leaf(x0), y = leaf(y0);
    const nn::NormArguments norm = norm_leaves(at::kFloat);
    const auto fused = results(x, y, norm, nn::add_and_norm(x, y, drop, norm));
    RC_ASSERT(fused[3].scalar_type() == y0.scalar_type());
    // `cancelling_magnitude`: magnitude of the terms of the norm and of the gradients. The terms may exceed the
    // results, since nearly equal numbers of a row cancel before the multiplication by 1 / standard deviation, which is
    // 1 / √epsilon for size 1.
    const at::Tensor centred = norm_type == nn::NormType::rms ? exact[0] : exact[0] - exact[0].mean(-1, true);
    const double max_rstd = 1 / (centred.square().mean(-1) + 1e-5).sqrt().min().item<double>(),
                 cancelling_magnitude = (1 + max_abs(exact[0])) * max_rstd * max_abs(norm0.weight) * max_abs(dnorm);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double magnitude = std::max(max_abs(exact[i]), i == 0 ? 0 : cancelling_magnitude),
                   bound = tolerance::composed_error_bound(error(composed[i], exact[i]),
                                                           numbers::unit_roundoff(fused[i].scalar_type()), magnitude);
      RC_LOG() << "result " << i << ": error " << error(fused[i], exact[i]) << " of " << bound << "\n";
      RC_ASSERT(error(fused[i], exact[i]) <= bound);
    }
    // Functions that compute only one of the two outputs, and computation without gradients, give bit-identical
    // results.
    const c10::NoGradGuard no_gradient;
    RC_ASSERT(nn::norm_of_sum(x0, y0, drop, norm0).equal(fused[1]));
    RC_ASSERT(nn::add_and_norm(x0, y0, drop, norm0).sum.equal(fused[0]));
    RC_ASSERT(nn::add(x0, y0, drop).equal(fused[0]));
    // A row does not depend on the other rows.
    if (!in_training)
      RC_ASSERT(nn::norm_of_sum(x0.narrow(1, 0, 1), y0.narrow(1, 0, 1), drop, norm0).equal(fused[1].narrow(1, 0, 1)));
  }));
}

TEST_CASE("nn::add passes its gradient unchanged to x and multiplied by the dropout mask to y", "[ops]") {
  at::manual_seed(7);
  const nn::ForwardContext forward_context{true, 3, 5};
  // For double precision, which has no kernel, nn::add calls LibTorch operations.
  for (const auto& [x_type, y_type] :
       {std::pair(at::kFloat, at::kFloat), std::pair(at::kFloat, at::kBFloat16), std::pair(at::kDouble, at::kDouble)})
    for (const double p : {0.0, 0.25}) {
      INFO(x_type << " and " << y_type << ", p " << p);
      const at::Tensor x = at::randn({2, 9, 20}).to(x_type).requires_grad_(),
                       y = at::randn({2, 9, 20}).to(y_type).requires_grad_(), dsum = at::randn({2, 9, 20}).to(x_type),
                       dropout_mask = nn::dropout(at::ones({2, 9, 20}), p, forward_context, "place", 1);
      const at::Tensor sum = nn::add(x, y, {p, forward_context, "place", 1});
      CHECK(sum.scalar_type() == x_type);
      // The product and the sum have one rounding each.
      const at::Tensor product = (y.to(x_type) * dropout_mask).detach();
      CHECK(rounding::agree(sum.detach(), x.detach() + product, 2, max_abs(x.detach()) + max_abs(product)));
      sum.backward(dsum);
      CHECK(x.grad().equal(dsum));
      CHECK(y.grad().scalar_type() == y_type);
      const at::Tensor dy = (dsum * dropout_mask).to(y_type);
      CHECK((y_type == at::kBFloat16 ? y.grad().equal(dy) : rounding::agree(y.grad(), dy, 1)));
    }
  const at::Tensor empty = at::zeros({0, 4, 20});
  CHECK(nn::add(empty, empty, {0.25, forward_context, "place", 1}).sizes().equals(empty.sizes()));
}

TEST_CASE("norm_of_sum throws if gain and shift do not have the size of a row", "[ops]") {
  const at::Tensor x = at::randn({2, 3, 20});
  CHECK_THROWS(nn::norm_of_sum(x, x, {0, {}, "place", 1}, {at::ones({16}), at::zeros({16}), 1e-5}));
  CHECK_THROWS(nn::norm_of_sum(x, x, {0, {}, "place", 1}, {at::ones({16}), {}, 1e-5, nn::NormType::rms}));
}

TEST_CASE("gelu is the exact GELU, gelu_tanh the tanh approximation of GPT-2, silu x sigmoid(x), relu clamps at 0",
          "[ops]") {
  at::Tensor x = at::linspace(-5, 5, 101), y = nn::activation(x, nn::Activation::gelu);
  at::Tensor tanh_gelu = nn::activation(x, nn::Activation::gelu_tanh);
  numbers::Vector exact, exact_tanh, exact_silu;
  for (double v : numbers::doubles(x)) {
    const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    exact_tanh.push_back(0.5 * v * (1 + std::tanh(inner)));
    exact.push_back(0.5 * v * (1 + std::erf(v / std::sqrt(2.0))));
    exact_silu.push_back(v * numbers::sigmoid(v));
  }
  // A chain of up to 10 roundings of numbers up to |x|, which cancel for negative x.
  CHECK(rounding::agree(tanh_gelu, at::tensor(exact_tanh, at::kDouble), 10));
  CHECK(rounding::agree(y, at::tensor(exact, at::kDouble), 10));
  CHECK(rounding::agree(nn::activation(x, nn::Activation::silu), at::tensor(exact_silu, at::kDouble), 10));
  CHECK(at::equal(nn::activation(x, nn::Activation::relu), x.clamp_min(0)));
}

TEST_CASE("embedding scales its rows, and its gradient sums over repeated tokens", "[ops]") {
  at::Tensor w = at::randn({10, 4}).requires_grad_();
  at::Tensor tokens = at::randint(10, {3, 40}, at::kLong);
  at::Tensor y = nn::embedding(tokens, w, 3), dy = at::randn({3, 40, 4});
  CHECK(error(y, w.detach().index_select(0, tokens.view(-1)).view({3, 40, 4}) * 3) == 0);
  y.backward(dy);
  at::Tensor expected = at::zeros({10, 4}, at::kDouble);
  expected.index_add_(0, tokens.view(-1), dy.view({120, 4}).to(at::kDouble) * 3);
  CHECK(rounding::agree(w.grad(), expected, 120 + 1));  // sums of at most 120 products
  CHECK(nn::embedding(tokens, w.detach().to(at::kBFloat16), 1).scalar_type() == at::kFloat);
}
