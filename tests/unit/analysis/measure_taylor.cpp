// The measure taylor against plain loops over gradients, and gradient products against finite differences.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/gradient_products.h"
#include "attention/head_scales.h"
#include "fixtures/measured_models.h"
#include "task/token_score.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;
using attention::HeadScales;

namespace {

// Returns the inner product of x[i][t] and d[i][t], with head i and position t.
double inner_product(const at::Tensor& x, const at::Tensor& d, int64_t i, int64_t t) {
  double sum = 0;
  for (int64_t s = 0; s < x.size(2); ++s) sum += element(x, i, t, s) * element(d, i, t, s);
  return sum;
}

}  // namespace

TEST_CASE("the measure taylor equals plain loops over gradients and head outputs", "[importance]") {
  check_measure("taylor", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                             const attention::AttentionLayer& layer) {
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      double sum = 0;
      const bool whole = side == SideSelection::whole;
      if (side == SideSelection::value || whole) sum += inner_product(pass.z, pass.dz, i, t);
      if (side == SideSelection::score || (whole && layer.has_separate_heads(HeadSide::score)))
        sum += inner_product(pass.x, pass.dx, i, t);
      if (side == SideSelection::output || (whole && layer.has_separate_heads(HeadSide::output)))
        sum += inner_product(pass.c, pass.dc, i, t);
      return std::abs(sum);
    });
  });
}

TEST_CASE("the measure taylor is independent of the batch size and does not change gradients or frozen parameters",
          "[importance]") {
  MeasuredModel measured_model("mixer = 'mixhead-a'\n");
  auto& parameters = measured_model.model->parameters();
  parameters.all()[1].set_trained(false);
  const auto batch_1 =
      decoder_self_scores(importance_of("taylor", measured_model.analysis_input(SideSelection::whole, 1)));
  const auto batch_100 =
      decoder_self_scores(importance_of("taylor", measured_model.analysis_input(SideSelection::whole, 100)));
  for (size_t layer = 0; layer < 2; ++layer)
    CHECK(is_near(batch_1[layer], batch_100[layer], measured_model.importance_bound()));
  for (const auto& p : parameters.all()) {
    CHECK_FALSE(p.master().grad().defined());
    CHECK(p.master().requires_grad() == (p.traits().trainable && &p != &parameters.all()[1]));
  }
}

TEST_CASE(
    "the sum of gradient products over positions is the derivative of the loss with respect to the scale of a head",
    "[importance]") {
  for (const StageCase& stages : stage_cases()) {
    MeasuredModel measured_model(stages.attention);
    for (SideSelection side : kSides) {
      if (!is_defined("taylor", side, stages)) continue;
      INFO(stages.attention << analysis::name_of(side));
      GradientProductObserver products(*measured_model.model, side);
      std::vector<at::Tensor> sums(2);
      data::BatchVisitor visitor;
      visitor.observer = &products;
      visitor.visit = [&](const data::ForwardedBatch& pass) {
        for (const auto& layer :
             products.collect(measured_model.model->loss(pass.hidden, {pass.batch.targets}, 0).smoothed)) {
          at::Tensor& sum = sums[static_cast<size_t>(layer.layer_spec->layer)];
          const at::Tensor batch_sum = layer.products.to(at::kDouble).sum(at::IntArrayRef({0, 2}));
          sum = sum.defined() ? sum + batch_sum : batch_sum;
        }
      };
      data::for_each_batch(*measured_model.model, measured_model.text, measured_model.scoring_options, visitor);
      // The loss is computed in fp32. The error of one token's loss is at most chain_error_bound(), and the errors of
      // different tokens are independent.
      const int64_t operations = rounding::num_pass_roundings(*measured_model.model, measured_model.max_keys());
      const auto tokens = static_cast<double>(measured_model.tokens.size());
      const double sum_nll =
                       task::score(*measured_model.model, measured_model.text, measured_model.scoring_options).nll,
                   noise =
                       std::sqrt(tokens) * tolerance::chain_error_bound(operations, tolerance::kFp32, sum_nll / tokens);
      double largest = 0, largest_bound = 0;
      for (size_t layer = 0; layer < 2; ++layer)
        for (int64_t head = 0; head < 3; ++head) {
          auto loss = [&](double weight) {
            at::Tensor scale = at::ones({3});
            scale[head] = weight;
            HeadScales scales;
            const auto sides = sides_in(measured_model.layer(layer), side);
            for (HeadSide s : sides)
              (s == HeadSide::score ? scales.score : s == HeadSide::value ? scales.value : scales.output) = scale;
            set_head_scales(measured_model.layer(layer), scales);
            const double nll =
                task::score(*measured_model.model, measured_model.text, measured_model.scoring_options).nll;
            set_head_scales(measured_model.layer(layer), {});
            return nll;
          };
          // Richardson extrapolation of central differences, which cancels the cubic term.
          constexpr double kStep = 0.01;
          auto difference = [&](double step) { return (loss(1 + step) - loss(1 - step)) / (2 * step); };
          const double near_slope = difference(kStep), far_slope = difference(2 * kStep),
                       slope = (4 * near_slope - far_slope) / 3;
          const double actual = sums[layer][head].item<double>();
          // The truncation error is less than the term that the extrapolation cancels, (near_slope - far_slope) / 3.
          // With the step size s, the independent errors of the four losses have the weights 2/(3s), 2/(3s), 1/(12s)
          // and 1/(12s); the root of the sum of the squared weights is less than 1/s. The gradient has the errors of a
          // forward and a backward pass.
          const double bound = std::abs(near_slope - far_slope) / 3 + noise / kStep +
                               tolerance::chain_error_bound(2 * operations, tolerance::kFp32, std::abs(slope));
          CHECK(std::abs(actual - slope) <= bound);
          largest = std::max(largest, std::abs(slope)), largest_bound = std::max(largest_bound, bound);
        }
      CHECK(largest > largest_bound);  // otherwise products of 0 would pass the test
    }
  }
}
