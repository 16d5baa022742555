// Differential attention against a naive reference and against Mixhead A.
#include "attention/methods/differential/differential.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/gradients.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using layers::causal_mask;
using layers::Layer;
using numbers::doubles;
using numbers::element;
using numbers::normal;
using reference::apply_projection;
using reference::Vector;
using reference::Weights;

namespace {

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Sizes {
  int64_t batch_size, length, width, num_pairs, dk, dv;
};

// Returns the output of causal differential attention, (B, T, d), row-major, in naive loops written from the equations
// with wide values: each pair of heads has two queries and keys of size dk and one value of size 2 dv.
//   y = concat_pairs((1 - λ_init) w ⊙ RMS((P_1 - λ P_2) V)) W^O + b
// If `cancellation` is not null, sets *cancellation to the largest quotient Σ |term| / rms unless its value is larger;
// Σ |term| is (P_1 + |λ| P_2) |V|, and rms is the root mean square of (P_1 - λ P_2) V.
Vector differential(const Sizes& sizes, double lambda_init, const Weights& w, const Vector& x,
                    double* cancellation = nullptr) {
  const auto [batch_size, length, width, num_pairs, dk, dv] = sizes;
  const Vector q = apply_projection(w, "query", x, width), k = apply_projection(w, "key", x, width),
               v = apply_projection(w, "value", x, width);
  const double lambda = std::exp(dot(w.at("mixer.lambda_query1"), w.at("mixer.lambda_key1"))) -
                        std::exp(dot(w.at("mixer.lambda_query2"), w.at("mixer.lambda_key2"))) + lambda_init;
  const int64_t pair_size = 2 * dv;
  Vector concatenated(static_cast<size_t>(batch_size * length * num_pairs * pair_size));
  for (int64_t b = 0; b < batch_size; ++b)
    for (int64_t t = 0; t < length; ++t)
      for (int64_t i = 0; i < num_pairs; ++i) {
        Vector weight(static_cast<size_t>(t + 1)), absolute_weight(weight.size()), z(static_cast<size_t>(pair_size)),
            absolute_z(z.size());
        for (int64_t half = 0; half < 2; ++half) {
          Vector exp_logits;
          for (int64_t s = 0; s <= t; ++s) {
            double logit = 0;
            for (int64_t c = 0; c < dk; ++c) {
              const int64_t column = (2 * i + half) * dk + c;
              logit += element(q, (b * length + t) * 2 * num_pairs * dk + column) *
                       element(k, (b * length + s) * 2 * num_pairs * dk + column);
            }
            exp_logits.push_back(std::exp(logit / std::sqrt(static_cast<double>(dk))));
          }
          double total = 0;
          for (double value : exp_logits) total += value;
          for (size_t s = 0; s < exp_logits.size(); ++s) {
            const double term = (half == 0 ? 1 : -lambda) * exp_logits[s] / total;
            weight[s] += term, absolute_weight[s] += std::abs(term);
          }
        }
        for (int64_t s = 0; s <= t; ++s)
          for (int64_t c = 0; c < pair_size; ++c) {
            const double value = element(v, (b * length + s) * num_pairs * pair_size + i * pair_size + c);
            z[static_cast<size_t>(c)] += element(weight, s) * value;
            absolute_z[static_cast<size_t>(c)] += element(absolute_weight, s) * std::abs(value);
          }
        const double rms = std::sqrt(dot(z, z) / static_cast<double>(pair_size) + 1e-5);
        if (cancellation != nullptr)
          for (double terms : absolute_z) *cancellation = std::max(*cancellation, terms / rms);
        for (int64_t c = 0; c < pair_size; ++c)
          concatenated[static_cast<size_t>((b * length + t) * num_pairs * pair_size + i * pair_size + c)] =
              (1 - lambda_init) * element(w.at("combiner.norm.weight"), c) * element(z, c) / rms;
      }
  return apply_projection(w, "output", concatenated, num_pairs * pair_size);
}

constexpr const char* kDifferential = "mixer = 'differential'\ncombiner = 'pair-norm'\n";

}  // namespace

TEST_CASE("differential attention and its gradients match a naive reference", "[differential]") {
  const double lambda_error = rounding::fp64_bound(4, 0.8);
  CHECK(lambda_init(0) == rounding::within(0.2, lambda_error));
  CHECK(lambda_init(3) == rounding::within(0.8 - 0.6 * std::exp(-0.9), lambda_error));
  CHECK(rc::check([] {
    c10::NoGradGuard no_gradient;
    const int64_t num_pairs = pick(1, 3), dk = pick(1, 4), dv = pick(1, 3), width = pick(1, 6), length = pick(1, 5);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(str("heads = ", 2 * num_pairs, "\nhead_size = ", dk, "\nvalue_size = ", dv, "\n", kDifferential), width,
            seed);
    l.perturb_parameters(seed);
    const at::Tensor x = normal({2, length, width}, seed);
    double cancellation = 1;
    const Vector expected =
        differential({2, length, width, num_pairs, dk, dv}, 0.2, l.weights(), doubles(x), &cancellation);
    const at::Tensor y = l(x, x, causal_mask());
    RC_ASSERT(layers::rounding_of(l, x, x, causal_mask())
                  .agree(y, at::tensor(expected, at::kDouble).view(y.sizes()), cancellation));
  }));
  Layer l(str("heads = 4\nhead_size = 2\nvalue_size = 3\n", kDifferential), 5, 3);
  l.perturb_parameters(4);
  const at::Tensor x = normal({2, 4, 5}, 1);
  layers::check_gradients(
      l, x, [&](const at::Tensor& input, Observer* observer) { return l(input, input, causal_mask(), {}, observer); },
      [&](const Weights& w, const Vector& input) {
        return differential({2, 4, 5, 2, 2, 3}, 0.2, w, input);
      });
}

TEST_CASE(
    "differential attention equals Mixhead A with columns (1, -λ) for each pair of heads; odd head counts are rejected",
    "[differential]") {
  c10::NoGradGuard no_gradient;
  Layer differential_layer("heads = 4\nmixer = 'differential'", 8, 5),
      mixhead_layer("heads = 4\nmixer = 'mixhead-a'", 8, 5);
  differential_layer.perturb_parameters(2);
  mixhead_layer.copy_parameters_from(differential_layer);
  const double lambda =
      std::exp(
          at::dot(differential_layer["mixer.lambda_query1"], differential_layer["mixer.lambda_key1"]).item<double>()) -
      std::exp(
          at::dot(differential_layer["mixer.lambda_query2"], differential_layer["mixer.lambda_key2"]).item<double>()) +
      0.2;
  at::Tensor m = at::zeros({4, 4});
  for (int64_t pair = 0; pair < 4; pair += 2)
    for (int64_t i = pair; i < pair + 2; ++i) m[pair][i] = 1, m[pair + 1][i] = -lambda;
  mixhead_layer.set("mixer.matrix", m);
  const at::Tensor x = normal({2, 5, 8}, 1);
  CHECK(layers::rounding_of(mixhead_layer, x, x, causal_mask())
            .agree(differential_layer(x, x, causal_mask()), mixhead_layer(x, x, causal_mask())));
  for (const char* toml : {"heads = 3\nmixer = 'differential'", "heads = 3\ncombiner = 'pair-norm'"})
    CHECK_THROWS_AS(Layer(toml, 6), Error);
}
