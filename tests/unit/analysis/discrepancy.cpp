// Head discrepancy against plain loops over pairs of heads.
#include "analysis/discrepancy.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/measured_models.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("head discrepancy before and after the combiner equals plain loops", "[discrepancy]") {
  for (const std::string& model_lines : {std::string(), kTransformerXl}) {
    MeasuredModel measured_model("combiner = 'alphas'\n", model_lines);
    const ObservedTensors recording = observe_passes(measured_model);
    DiscrepancyObserver discrepancy;
    data::BatchVisitor visitor;
    visitor.observer = &discrepancy;
    visitor.visit = [](const data::ForwardedBatch&) {};
    data::for_each_batch(*measured_model.model, measured_model.text,
                         measured_model.analysis_input(SideSelection::whole, 3).scoring_options, visitor);
    const auto layers = discrepancy.layers().at(AttentionKind::decoder_self);
    REQUIRE(layers.size() == 2);
    for (size_t layer = 0; layer < 2; ++layer)
      for (auto point : {&DiscrepancyObserver::Layer::before_combiner, &DiscrepancyObserver::Layer::after_combiner}) {
        double cosine = 0, euclidean = 0, count = 0;
        for (const auto& pass : recording.layers[layer]) {
          if (pass.length == 0) continue;
          const at::Tensor z = point == &DiscrepancyObserver::Layer::before_combiner ? pass.z : pass.c;
          for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 3; ++j) {
              if (i == j) continue;
              double dot = 0, a = 0, b = 0, squared_distance = 0;
              for (int64_t t = 0; t < pass.length; ++t)
                for (int64_t s = 0; s < z.size(2); ++s) {
                  const double x = element(z, i, t, s), y = element(z, j, t, s);
                  dot += x * y, a += x * x, b += y * y, squared_distance += (x - y) * (x - y);
                }
              cosine += 1 - dot / std::sqrt(a * b), euclidean += std::sqrt(squared_distance);
            }
          ++count;
        }
        const auto& actual = layers[layer].*point;
        CHECK(discrepancy.num_sequences() == static_cast<int64_t>(count));
        CHECK(actual.num_heads == 3);
        CHECK(actual.num_pairs() == 6);
        // `cosine / count` sums 6 cosine distances, one for each ordered pair of heads. Each distance has the error of
        // a cosine, which is at most 1 in absolute value.
        CHECK(actual.cosine == rounding::within(cosine / count, measured_model.pass_bound() * 6));
        CHECK(actual.euclidean == rounding::within(euclidean / count, measured_model.pass_bound() * euclidean / count));
      }
    CHECK(std::abs(layers[0].before_combiner.cosine - layers[0].after_combiner.cosine) >
          measured_model.pass_bound() * 2 * 6);
  }
}

TEST_CASE("head discrepancy of equal, opposite and zero head outputs has the closed-form value and ignores padding",
          "[discrepancy]") {
  const attention::LayerSpec spec;
  DiscrepancyObserver discrepancy;
  discrepancy.begin_batch(attention::Lengths(at::tensor({2}, at::kLong)));
  at::Tensor z = at::ones({1, 4, 3, 2});
  z.select(1, 1).neg_();
  z.select(1, 2).zero_();
  z.narrow(2, 2, 1).fill_(100);  // padding
  discrepancy.intercept_heads(HeadSide::value, spec, z);
  const auto layer = discrepancy.layers().at(spec.kind)[0];
  // Cosine distances of the heads (0, 1): 2, (0, 2): 1, (0, 3): 0, (1, 2): 1, (1, 3): 2, (2, 3): 1. Euclidean distances
  // in the same order: 4, 2, 0, 2, 4, 2. The sum over ordered pairs counts each distance twice.
  // The norm of a head is 2 or 0, so that all results are exact.
  CHECK(layer.before_combiner.cosine == 14);
  CHECK(layer.before_combiner.euclidean == 28);
}

TEST_CASE("contributions that one observer records and another adds give the bits of an observer without recording",
          "[discrepancy]") {
  attention::LayerSpec spec;
  DiscrepancyObserver direct, recorder, sum;
  recorder.begin_recording();
  for (int pass = 0; pass < 3; ++pass) {
    const at::Tensor z = at::randn({2, 4, 3, 2}), lengths = at::tensor({3, pass}, at::kLong);
    for (DiscrepancyObserver* observer : {&direct, &recorder}) {
      spec.layer = pass % 2;
      observer->begin_batch(attention::Lengths(lengths));
      observer->intercept_heads(HeadSide::value, spec, z);
      observer->intercept_heads(HeadSide::output, spec, 2 * z);
    }
    CHECK(recorder.num_sequences() == 0);
    sum.add_recorded(recorder.take_recorded());
  }
  CHECK(sum.num_sequences() == direct.num_sequences());
  const auto direct_layers = direct.layers().at(spec.kind), layers = sum.layers().at(spec.kind);
  REQUIRE(layers.size() == direct_layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (auto point : {&DiscrepancyObserver::Layer::before_combiner, &DiscrepancyObserver::Layer::after_combiner}) {
      CHECK((layers[layer].*point).num_heads == 4);
      CHECK((layers[layer].*point).cosine == (direct_layers[layer].*point).cosine);
      CHECK((layers[layer].*point).euclidean == (direct_layers[layer].*point).euclidean);
    }
}
