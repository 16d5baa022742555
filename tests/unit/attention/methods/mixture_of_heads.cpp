// The mixture of heads (MoH) against its equations.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/layers.h"

using namespace mh;
using namespace mh::attention;
using layers::causal;
using layers::Layer;
using layers::RecordingObserver;
using numbers::close;
using numbers::doubles;
using numbers::element;
using numbers::normal;
using reference::projected;
using reference::Vector;
using reference::Weights;

TEST_CASE("weights of shared and of top-k routed heads in a mixture of heads match the equations",
          "[mixture-of-heads]") {
  CHECK(rc::check([] {
    c10::NoGradGuard no_gradient;
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t shared = pick(0, 2), routed = pick(1, 4), k = pick(1, routed), h = shared + routed, d = 6;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(str("heads = ", h,
                "\nhead_size = 2\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared = ", shared,
                "\nchosen = ", k),
            d, seed);
    l.perturb_parameters(seed);
    const at::Tensor x = normal({2, 3, d}, seed);
    RecordingObserver watch;
    const at::Tensor y = l(x, x, causal(), {}, &watch);
    const Weights w = l.weights();
    const Vector xs = doubles(x), scores = projected(w, "combiner.router", xs, d);
    auto softmax = [](Vector v) {
      double sum = 0;
      for (double& e : v) sum += e = std::exp(e);
      for (double& e : v) e /= sum;
      return v;
    };
    Vector expected;
    for (int64_t r = 0; r < 6; ++r) {
      const auto row = scores.begin() + r * h;
      Vector p_shared = softmax({row, row + shared}), p_routed = softmax({row + shared, row + h}), balance{0.5, 0.5};
      if (shared > 0) {
        const Vector balance_logits = projected(w, "combiner.balance", xs, d);
        balance = softmax({balance_logits.begin() + 2 * r, balance_logits.begin() + 2 * r + 2});
      }
      for (double value : p_shared) expected.push_back(2 * balance[0] * static_cast<double>(shared) * value);
      Vector sorted = p_routed;
      std::sort(sorted.rbegin(), sorted.rend());
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += element(sorted, i);
      for (double value : p_routed)
        expected.push_back(value >= element(sorted, k - 1) ? 2 * balance[1] * static_cast<double>(k) * value / sum : 0);
    }
    RC_ASSERT(numbers::worst(doubles(watch.g), expected) < 1e-5);
    RC_ASSERT(close(layers::output_by_heads(l, watch.z, watch.g), y, 1e-4));
  }));
}

TEST_CASE("gradients of a mixture of heads equal finite differences; more chosen than routed heads are rejected",
          "[mixture-of-heads]") {
  const char* toml =
      "heads = 4\nhead_size = 2\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared = 1\nchosen = 2";
  Layer l(toml, 5, 3);
  l.perturb_parameters(4);
  const at::Tensor x = normal({2, 3, 5}, 1), r = normal({2, 3, 5}, 9);
  for (const char* name : {"combiner.router.weight", "combiner.balance.weight", "value.weight"}) {
    l.parameters.zero_gradients();
    (l(x, x, causal()) * r).sum().backward();
    const at::Tensor g = l[name].grad().clone();
    c10::NoGradGuard no_gradient;
    for (int64_t i = 0; i < g.numel(); i += 3) {
      auto shifted_loss = [&](double step) {
        l[name].flatten()[i] += step;
        const double value = (l(x, x, causal()) * r).to(at::kDouble).sum().item<double>();
        l[name].flatten()[i] -= step;
        return value;
      };
      CHECK(g.flatten()[i].item<double>() ==
            Approx((shifted_loss(1e-3) - shifted_loss(-1e-3)) / 2e-3).margin(5e-3).epsilon(2e-2));
    }
  }
  CHECK_THROWS_AS(
      Layer("heads = 4\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared = 3\nchosen = 2", 8),
      Error);
}
