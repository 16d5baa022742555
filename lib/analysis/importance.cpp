// The registry of measures, the checks of their sides, and the ranking of heads.
#include "analysis/importance.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "base/error.h"

namespace mh::analysis {

using attention::AttentionLayer;
using attention::HeadSide;

namespace {

// The corpus of importance_without_data(): every use is an error.
struct MissingCorpus : data::Corpus {
  static constexpr const char* kReadsData =
      "importance_without_data(): expected a measure that reads no data; found one that reads it";
  int64_t num_targets() const override { throw std::logic_error(kReadsData); }
  data::ScoringOptions resolve(const data::ScoringOptions&, model::LanguageModel&) const override {
    throw std::logic_error(kReadsData);
  }
  data::MiniBatches mini_batches(const data::ScoringOptions&) const override { throw std::logic_error(kReadsData); }
  std::unique_ptr<data::Batches> batches(const data::BatchOptions&, int64_t) const override {
    throw std::logic_error(kReadsData);
  }
};

}  // namespace

Registry<ImportanceMeasure>& importance_measures() {
  static Registry<ImportanceMeasure> registry("measure");
  return registry;
}

std::vector<std::string> observer_measure_names() {
  std::vector<std::string> names;
  for (const std::string& name : importance_measures().names())
    if (importance_measures().make(name, "")->make_observer(SideSelection::whole) != nullptr) names.push_back(name);
  return names;
}

const char* name_of(HeadSide side) {
  return side == HeadSide::score ? "score" : side == HeadSide::value ? "value" : "output";
}

const char* name_of(SideSelection side) {
  for (const SideName& candidate : kSideNames)
    if (side == candidate.side) return candidate.name;
  return "";
}

SideSelection side_named(const std::string& name) {
  for (const SideName& candidate : kSideNames)
    if (name == candidate.name) return candidate.side;
  return SideSelection::whole;
}

std::vector<HeadSide> sides_in(const AttentionLayer& layer, SideSelection side) {
  std::vector<HeadSide> sides;
  for (auto [tensor_side, selecting_side] : {std::pair{HeadSide::score, SideSelection::score},
                                             {HeadSide::value, SideSelection::value},
                                             {HeadSide::output, SideSelection::output}})
    if ((side == SideSelection::whole || side == selecting_side) && layer.has_separate_heads(tensor_side))
      sides.push_back(tensor_side);
  return sides;
}

void check_importance(const std::string& name, const std::string& where, model::LanguageModel& model,
                      SideSelection side, const Kinds& kinds) {
  const auto importance = importance_measures().make(name, where);
  for (const AttentionLayer* layer : model.attention_layers()) {
    if (layer->layer_spec().heads == 0 || !contains(kinds, layer->layer_spec().kind)) continue;
    auto refuse = [&](const std::string& expected, const std::string& found, const std::string& advice) {
      refuse_usage(where, expected, found, advice);
    };
    const char* stage = side == SideSelection::score ? "mixer" : "combiner that mixes heads";
    if (sides_in(*layer, side).empty())
      refuse(str("a ", stage, " in every layer, since --side ", name_of(side), " requires ", name_of(side),
                 " heads separate from the value heads"),
             str(layer->layer_spec().name, ", which has no ", stage), "leave --side out");
    const auto sides = sides_in(*layer, side);
    for (const HeadSide tensor_side : sides)
      if (layer->layer_spec().num_heads_of(tensor_side) != layer->layer_spec().num_heads_of(sides[0]))
        refuse(
            "equal numbers of score, value and output heads in every layer, since the measure scores each head as a "
            "unit",
            str(layer->layer_spec().name, ": ", layer->layer_spec().num_heads_of(sides[0]), " ", name_of(sides[0]),
                " heads, ", layer->layer_spec().num_heads_of(tensor_side), " ", name_of(tensor_side), " heads"),
            "use --side score, value or output");
    if (const std::string reason = importance->why_undefined(model, *layer, side); !reason.empty())
      refuse(side == SideSelection::whole
                 ? "a measure that is defined for whole heads in every layer"
                 : str("a measure that is defined for ", name_of(side), " heads in every layer"),
             str("'", name, "', which is undefined in ", layer->layer_spec().name, ", since ", reason),
             str("use another measure, such as ", side == SideSelection::score ? "taylor" : "avg-l2-outputs"));
  }
}

std::map<AttentionKind, LayerScores> ImportanceMeasure::compute_scores(const AnalysisInput& input) const {
  c10::NoGradGuard no_gradient;
  const auto measure = make_observer(input.side);
  run_with_observer(input, *measure);
  return measure->mean_scores();
}

std::map<AttentionKind, LayerScores> importance_of(const std::string& name, const AnalysisInput& input) {
  check_importance(name, "measure", input.model, input.side, input.kinds);
  auto scores_by_kind = importance_measures().make(name, "measure")->compute_scores(input);
  for (auto it = scores_by_kind.begin(); it != scores_by_kind.end();)
    it = contains(input.kinds, it->first) ? std::next(it) : scores_by_kind.erase(it);
  require_finite(scores_by_kind);
  for (const AttentionLayer* layer : input.model.attention_layers()) {
    if (!contains(input.kinds, layer->layer_spec().kind)) continue;
    LayerScores& scores = scores_by_kind[layer->layer_spec().kind];
    scores.resize(std::max(scores.size(), static_cast<size_t>(layer->layer_spec().layer) + 1));
  }
  return scores_by_kind;
}

std::map<AttentionKind, LayerScores> importance_without_data(const std::string& name, model::LanguageModel& model,
                                                             SideSelection side, const Kinds& kinds, int64_t seed) {
  const MissingCorpus corpus;
  AnalysisInput input{model, corpus, {}, side, {}, kinds};
  input.scoring_options.sample.seed = seed;
  return importance_of(name, input);
}

void normalise_by_layer(LayerScores& scores) {
  for (auto& layer : scores) {
    double squares = 0;
    for (double score : layer) squares += score * score;
    if (squares > 0)
      for (double& score : layer) score /= std::sqrt(squares);
  }
}

std::vector<RankedHead> rank_heads(const std::map<AttentionKind, LayerScores>& scores, bool per_layer) {
  std::vector<RankedHead> ranked_heads;
  for (const auto& [kind, layers] : scores)
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (size_t head = 0; head < layers[layer].size(); ++head)
        ranked_heads.push_back({kind, {static_cast<int64_t>(layer), static_cast<int64_t>(head)}, layers[layer][head]});
  const auto layer_key = [](const RankedHead& r) { return std::tie(r.kind, r.head.layer); };
  std::stable_sort(ranked_heads.begin(), ranked_heads.end(), [&](const RankedHead& a, const RankedHead& b) {
    if (per_layer && layer_key(a) != layer_key(b)) return layer_key(a) < layer_key(b);
    return a.score < b.score;
  });
  for (size_t i = 0; i < ranked_heads.size(); ++i)
    ranked_heads[i].rank = i > 0 && (!per_layer || layer_key(ranked_heads[i]) == layer_key(ranked_heads[i - 1]))
                               ? ranked_heads[i - 1].rank + 1
                               : 1;
  return ranked_heads;
}

}  // namespace mh::analysis
