// Hard-concrete gates: equation, penalty and random draws.
#include "attention/methods/hard_concrete/hard_concrete.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::Layer;
using layers::output_by_heads;
using layers::RecordingObserver;
using numbers::normal;
using numbers::sigmoid;

TEST_CASE("hard-concrete gates, their gradients and their penalty match the equations", "[hard-concrete]") {
  const HardConcreteDistribution distribution;
  const at::Tensor a = normal({40}, 1).to(at::kDouble) * 2, logit_u = normal({40}, 2).to(at::kDouble) * 2,
                   u = at::sigmoid(logit_u);
  // Gates and their derivatives have fewer than ten roundings, of numbers as large as the argument of the sigmoid.
  const double argument = (numbers::max_abs(a) + numbers::max_abs(logit_u)) / 0.33,
               bound = rounding::fp64_bound(10, argument);
  auto gate = [&](double log_a, double x) {
    const double s = sigmoid((std::log(x) - std::log(1 - x) + log_a) / 0.33);
    return std::min(1.0, std::max(0.0, -0.1 + 1.2 * s));
  };
  const at::Tensor x = a.clone().requires_grad_(), g = hard_concrete_gates(distribution, x, u),
                   evaluation_gates = hard_concrete_gates(distribution, a, {});
  g.sum().backward();
  int64_t num_closed = 0, num_open = 0;
  double penalty = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const double ai = a[i].item<double>(), ui = u[i].item<double>(), gi = g[i].item<double>();
    CHECK(gi == rounding::within(gate(ai, ui), bound));
    CHECK(evaluation_gates[i].item<double>() ==
          rounding::within(std::min(1.0, std::max(0.0, -0.1 + 1.2 * sigmoid(ai))), bound));
    const rounding::Slope slope = rounding::slope([&](double step) { return gate(ai + step, ui); }, 1e-4, 10, argument);
    CHECK(x.grad()[i].item<double>() == rounding::within(slope.value, bound + slope.error));
    num_closed += gi == 0, num_open += gi == 1;
    penalty += sigmoid(ai - 0.33 * std::log(0.1 / 1.1));
  }
  CHECK((num_closed > 0 && num_open > 0));
  CHECK(hard_concrete_penalty(distribution, a).item<double>() == rounding::fp64(penalty, 40 + 10));
}

TEST_CASE("the penalty of hard-concrete gates is the expected number of nonzero gates", "[hard-concrete]") {
  const at::Tensor a = at::full({1}, 0.7, at::kDouble);
  const int64_t num_draws = 20000;
  const at::Tensor u = (at::arange(num_draws, at::kDouble) + 0.5) / static_cast<double>(num_draws);
  const at::Tensor g = hard_concrete_gates({}, a.expand({num_draws}), u);
  // The fraction of evenly spaced u above a threshold differs from the probability by at most half the spacing.
  CHECK((g != 0).to(at::kDouble).mean().item<double>() ==
        rounding::within(hard_concrete_penalty({}, a).item<double>(),
                         0.5 / static_cast<double>(num_draws) + rounding::fp64_bound(10, 1)));
}

TEST_CASE("hard-concrete gates are drawn from seed and update, once per batch, and are constant in evaluation",
          "[hard-concrete]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 8\nhead_size = 2\ncombiner = 'hard-concrete'", 6, 5);
  const at::Tensor x = normal({2, 4, 6}, 1);
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x);
  auto gates = [&](bool training, uint64_t seed, uint32_t update, int64_t num_rows = 2, int64_t row_offset = 0) {
    ForwardContext forward_context;
    forward_context.training = training;
    forward_context.seed = seed;
    forward_context.update = update;
    forward_context.row_offset = row_offset;
    RecordingObserver recorder;
    const at::Tensor rows_of_x = x.narrow(0, 0, num_rows);
    const at::Tensor y = l(rows_of_x, rows_of_x, {}, forward_context, &recorder);
    CHECK(rounding.combiners_agree(y, output_by_heads(l, recorder.z, recorder.g)));
    return recorder.g;
  };
  CHECK(at::equal(gates(true, 1, 0), gates(true, 1, 0)));
  CHECK(at::equal(gates(true, 1, 0), gates(true, 1, 0, 1, 1)));  // a micro-batch of the same update
  CHECK(!at::equal(gates(true, 1, 0), gates(true, 1, 1)));
  CHECK(!at::equal(gates(true, 1, 0), gates(true, 2, 0)));
  CHECK(at::equal(gates(false, 1, 0), gates(false, 2, 1)));
  CHECK(rounding::agree(gates(false, 1, 0), at::full({8}, 0.5), 4));  // log a = 0
}

TEST_CASE("permuting the heads leaves layers with hard-concrete gates unchanged, and the layers take the fused path",
          "[hard-concrete]") {
  layers::check_head_permutation({"combiner = 'hard-concrete'"});
  layers::check_fused_equals_composed("hard-concrete");
}
