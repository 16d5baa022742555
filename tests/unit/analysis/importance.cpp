// Measures of importance: the sides of a head for which each measure is defined, layers without heads, and
// normalisation.
#include "analysis/importance.h"

#include <catch2/catch.hpp>

#include "analysis/rotation.h"
#include "fixtures/measured_models.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("check_importance() refuses exactly the measures that are undefined for whole, score, value or output heads",
          "[importance]") {
  for (const StageCase& stages : stage_cases()) {
    MeasuredModel measured_model(stages.attention);
    for (const std::string& measure : importance_measures().names())
      for (SideSelection side : kSides) {
        if (measure == "ablation") continue;
        INFO(stages.attention << measure << " " << analysis::name_of(side));
        const int status = status_of([&] { check_importance(measure, "--by", *measured_model.model, side); });
        CHECK(status == (is_defined(measure, side, stages) ? 0 : 2));
        if (status == 2) CHECK(status_of([&] { importance_of(measure, measured_model.analysis_input(side)); }) == 2);
      }
  }
  MeasuredModel measured_model("");
  CHECK(status_of([&] { importance_of("tailor", measured_model.analysis_input(SideSelection::whole)); }) == 2);
}

TEST_CASE("normalise_by_layer() divides the scores of a layer by their l2 norm and leaves a layer of zeros unchanged",
          "[importance]") {
  LayerScores scores{{3, -4}, {0, 0}, {}};
  normalise_by_layer(scores);
  CHECK(scores == LayerScores{{0.6, -0.8}, {0, 0}, {}});
}

TEST_CASE("a layer without heads has no scores, and whole heads are refused in a layer with unequal head counts",
          "[importance]") {
  const MeasuredModel layer_without_heads("mixer = 'none'\n[attention.decoder.self.0]\nheads = 0\n");
  for (const std::string name : {"taylor", "avg-l2", "entropy", "weight-norm"}) {
    const LayerScores scores =
        importance_of(name, layer_without_heads.analysis_input(SideSelection::whole)).at(AttentionKind::decoder_self);
    CHECK(scores[0].empty());
    CHECK(scores[1].size() == 3);
  }
  const auto head_counts = head_counts_for_pairing(layer_without_heads.model->parameters(), PairSelection::random, 1, 0,
                                                   {}, {}, [](const char* key) { return std::string(key); });
  CHECK((head_counts.at(AttentionKind::decoder_self) == std::vector<int64_t>{0, 3}));
  const MeasuredModel unequal_model("mixer = 'mixhead-a'\nvalue_heads = 2\n");
  for (const std::string name : {"taylor", "weight-norm"}) {
    CHECK(status_of([&] { importance_of(name, unequal_model.analysis_input(SideSelection::whole)); }) == 2);
    CHECK(importance_of(name, unequal_model.analysis_input(SideSelection::score))
              .at(AttentionKind::decoder_self)[0]
              .size() == 3);
    CHECK(importance_of(name, unequal_model.analysis_input(SideSelection::value))
              .at(AttentionKind::decoder_self)[0]
              .size() == 2);
  }
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
      observer->begin_batch(lengths);
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
