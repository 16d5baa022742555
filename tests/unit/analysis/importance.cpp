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
