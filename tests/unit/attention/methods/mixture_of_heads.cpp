// The mixture of heads (MoH) against its equations.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/gradients.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using layers::causal_mask;
using layers::Layer;
using layers::output_by_heads;
using layers::RecordingObserver;
using numbers::doubles;
using numbers::element;
using numbers::normal;
using reference::apply_projection;
using reference::Vector;
using reference::Weights;

namespace {

// Numbers of shared heads, of routed heads, and of routed heads that each position chooses.
struct HeadCounts {
  int64_t num_shared, num_routed, num_chosen;
};

// Returns the weights of the heads (B · T, h) for rows of x (B · T, d).
Vector head_weights(const HeadCounts& counts, const Weights& w, const Vector& x, int64_t d) {
  const int64_t h = counts.num_shared + counts.num_routed;
  const Vector scores = apply_projection(w, "combiner.router", x, d);
  auto softmax = [](Vector v) {
    double sum = 0;
    for (double& e : v) sum += e = std::exp(e);
    for (double& e : v) e /= sum;
    return v;
  };
  Vector weights;
  for (int64_t r = 0; r < static_cast<int64_t>(x.size()) / d; ++r) {
    const auto row = scores.begin() + r * h;
    Vector p_shared = softmax({row, row + counts.num_shared}), p_routed = softmax({row + counts.num_shared, row + h}),
           balance{0.5, 0.5};
    if (counts.num_shared > 0) {
      const Vector balance_logits = apply_projection(w, "combiner.balance", x, d);
      balance = softmax({balance_logits.begin() + 2 * r, balance_logits.begin() + 2 * r + 2});
    }
    for (double value : p_shared) weights.push_back(2 * balance[0] * static_cast<double>(counts.num_shared) * value);
    Vector sorted = p_routed;
    std::sort(sorted.rbegin(), sorted.rend());
    double sum = 0;
    for (int64_t i = 0; i < counts.num_chosen; ++i) sum += element(sorted, i);
    for (double value : p_routed)
      weights.push_back(value >= element(sorted, counts.num_chosen - 1)
                            ? 2 * balance[1] * static_cast<double>(counts.num_chosen) * value / sum
                            : 0);
  }
  return weights;
}

// Returns the output Σ_i w_i H_i + b of causal attention (B, T, d), where H_i is the contribution of head i.
Vector mixture(const HeadCounts& counts, const reference::Sizes& sizes, const Weights& w, const Vector& x) {
  const Vector weights = head_weights(counts, w, x, sizes.width);
  Vector y;
  for (int64_t r = 0; r < sizes.batch * sizes.queries; ++r)
    y.insert(y.end(), w.at("output.bias").begin(), w.at("output.bias").end());
  for (int64_t i = 0; i < sizes.heads; ++i) {
    const Vector contribution =
        reference::head_output(sizes, i, x, x, w, [](int64_t, int64_t t, int64_t s) { return s <= t; });
    for (size_t c = 0; c < y.size(); ++c)
      y[c] += element(weights, static_cast<int64_t>(c) / sizes.width * sizes.heads + i) * contribution[c];
  }
  return y;
}

}  // namespace

TEST_CASE("weights of shared and of top-k routed heads in a mixture of heads match the equations",
          "[mixture-of-heads]") {
  CHECK(rc::check([] {
    c10::NoGradGuard no_gradient;
    HeadCounts counts{pick(0, 2), pick(1, 4), 0};
    counts.num_chosen = pick(1, counts.num_routed);
    const int64_t h = counts.num_shared + counts.num_routed, d = 6;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(str("heads = ", h,
                "\nhead_size = 2\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared_heads = ",
                counts.num_shared, "\nchosen_heads = ", counts.num_chosen),
            d, seed);
    l.perturb_parameters(seed);
    const at::Tensor x = normal({2, 3, d}, seed);
    RecordingObserver recorder;
    const at::Tensor y = l(x, x, causal_mask(), {}, &recorder);
    const Vector expected = head_weights(counts, l.weights(), doubles(x), d);
    // A logit of the router is a sum of d products. A weight is the product of a quotient of probabilities and a
    // probability; an error ε of the logits changes each of these two factors by a relative error of about ε.
    const double largest_logit =
        numbers::max_abs(x.square().sum(-1)) * numbers::max_abs(l["combiner.router.weight"].square().sum(-1));
    const at::Tensor exact = at::tensor(expected, at::kDouble).view(recorder.g.sizes());
    RC_ASSERT(rounding::agree(recorder.g, exact, d + h + layers::kElementwiseRoundings,
                              2 * std::max(1.0, std::sqrt(largest_logit)) * numbers::max_abs(exact)));
    RC_ASSERT(
        layers::rounding_of(l, x, x, causal_mask()).combiners_agree(output_by_heads(l, recorder.z, recorder.g), y));
  }));
}

TEST_CASE("gradients of a mixture of heads equal finite differences; more chosen than routed heads are rejected",
          "[mixture-of-heads]") {
  const char* toml =
      "heads = 4\nhead_size = 2\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared_heads = "
      "1\nchosen_heads = 2";
  Layer l(toml, 5, 3);
  l.perturb_parameters(4);
  layers::check_gradients(
      l, normal({2, 3, 5}, 1),
      [&](const at::Tensor& x, Observer* observer) { return l(x, x, causal_mask(), {}, observer); },
      [](const Weights& w, const Vector& x) {
        return mixture({1, 3, 2}, {2, 3, 3, 5, 4, 2, 2}, w, x);
      });
  CHECK_THROWS_AS(
      Layer(
          "heads = 4\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared_heads = 3\nchosen_heads = 2",
          8),
      Error);
}
