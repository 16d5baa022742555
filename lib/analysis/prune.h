// Structured pruning: removes heads from a model. The blocks of parameters that belong to a pruned head (nn::HeadAxis)
// are removed and the layer's configuration gets the smaller head counts. The pruned model computes the same as the
// full model with these heads masked (attention::HeadScales of zeros), except for rounding.
//
// The code depends only on the traits of parameters and not on particular stages. A stage adapts its options itself
// (attention::Stage::options_after_pruning). A layer whose pruned heads no longer fit a parameter that the layers of a
// stack share gets its own copy.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "analysis/analysis_input.h"
#include "analysis/heads.h"
#include "analysis/importance.h"
#include "model/model_config.h"

namespace mh::analysis {

// A number of heads: a count, or, if that is 0, a fraction, rounded down.
struct Share {
  int64_t count = 0;
  double fraction = 0;
};
// Returns the heads with the lowest scores: `share` of all heads, or `share` of the heads of each layer. Among equal
// scores, the head of the lower layer comes first, then the lower head. Throws Error(usage) about the option `where` if
// that is no head at all, or more heads than exist.
HeadSet least_important(const std::map<AttentionKind, LayerScores>& scores, const Share& share, bool per_layer,
                        const std::string& where);

// Throws the errors of least_important() for the layers of `kinds` without measuring scores.
void check_share(model::LanguageModel& model, Side side, const Kinds& kinds, const Share& share, bool per_layer,
                 const std::string& where);

// Returns the side whose heads `side` counts; value heads for whole heads.
attention::HeadSide head_side(Side side);

// The kept heads of each pruned layer, by kind and layer.
using Kept = std::map<AttentionKind, std::map<int64_t, attention::KeptHeads>>;

// Returns the kept heads after pruning `cut` on this side. Sides that cannot be pruned separately from it
// (AttentionLayer::can_prune_separately) are pruned with it. Throws Error(usage) about the option `where` if `cut` is
// empty or the model lacks a head; if `side` is whole but the head counts of a layer's sides differ; and if the named
// side cannot be pruned separately from the value heads.
Kept kept_without(model::LanguageModel& model, const HeadSet& cut, Side side, const std::string& where);

struct PrunedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
};

// Builds the pruned model. Throws Error(usage) if a stage does not support pruning these heads.
PrunedModel prune_heads(const model::ModelConfig& config, model::LanguageModel& model, const Kept& kept);

// Copies all parameters of `from` to `to`, whose layers have only the heads `kept`.
void copy_kept(nn::ParameterList& from, const Kept& kept, nn::ParameterList& to);

}  // namespace mh::analysis
