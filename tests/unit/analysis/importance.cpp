// Measures of importance: the sides of a head for which each measure is defined, layers without heads, and
// normalisation.
#include "analysis/importance.h"

#include <catch2/catch.hpp>
#include <map>
#include <stdexcept>

#include "analysis/rotation.h"
#include "fixtures/aten.h"
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

TEST_CASE("scores of a model without masters and with bf16 copies are equal bit for bit, or need masters",
          "[importance]") {
  for (const std::string& model_lines : {std::string(), kTransformerXl})
    for (const StageCase& stages : stage_cases()) {
      MeasuredModel measured_model(stages.attention, model_lines);
      const AnalysisInput input = measured_model.analysis_input(SideSelection::whole);
      nn::ParameterList& parameters = measured_model.model->parameters();
      std::map<std::string, at::Tensor> stored_values;
      for (nn::Parameter& p : parameters.all()) {
        stored_values[p.name()] = p.master().detach().to(at::kBFloat16);
        p.set_values(stored_values[p.name()]);
      }
      parameters.use_bf16_copies(true);
      std::map<std::string, std::map<AttentionKind, LayerScores>> expected;
      for (const std::string& measure : importance_measures().names())
        if (is_defined(measure, SideSelection::whole, stages)) expected[measure] = importance_of(measure, input);
      parameters.set_evaluation_values([&](const nn::Parameter& p) { return stored_values.at(p.name()); });
      for (const auto& [measure, scores] : expected) {
        INFO(stages.attention << model_lines << measure);
        CHECK(importance_measures().make(measure, "--by")->reads_masters() ==
              (measure == "weight-norm" || measure == "alpha"));
        // Projections, which weight-norm reads, are product operands without masters; mixing matrices keep masters.
        if (measure == "weight-norm") CHECK_THROWS_AS(importance_of(measure, input), std::logic_error);
        else CHECK((importance_of(measure, input) == scores));
      }
    }
}

TEST_CASE("importance_without_data() returns the scores of importance_of(), and refuses measures that read data",
          "[importance]") {
  for (const StageCase& stages : stage_cases()) {
    MeasuredModel measured_model(stages.attention);
    const AnalysisInput input = measured_model.analysis_input(SideSelection::whole);
    for (const std::string& measure : importance_measures().names()) {
      if (!is_defined(measure, SideSelection::whole, stages)) continue;
      INFO(stages.attention << measure);
      const auto scores_without_data = [&] {
        return importance_without_data(measure, input.model, input.side, input.kinds,
                                       input.scoring_options.sample.seed);
      };
      if (importance_measures().make(measure, "--by")->reads_data())
        CHECK_THROWS_AS(scores_without_data(), std::logic_error);
      else CHECK((scores_without_data() == importance_of(measure, input)));
    }
  }
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
