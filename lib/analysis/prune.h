// Structured pruning: removes heads from a model. The blocks of parameters that belong to a pruned head (nn::HeadAxis)
// are removed and the layer's configuration gets the smaller head counts. The outputs of the pruned model equal those
// of the full model with these heads masked (attention::HeadScales of zeros), except for rounding.
//
// The code depends only on the traits of parameters and not on particular stages. A stage adapts its options itself
// (attention::Stage::options_after_pruning). If the remaining heads of a layer no longer match a parameter that the
// layers of a stack share, the layer gets its own copy of the parameter.
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

// The number of heads to prune: `count`, or, if `count` is 0, `fraction` of the heads, rounded down.
struct PruneAmount {
  int64_t count = 0;
  double fraction = 0;
};
// Returns the heads with the lowest scores. `amount` applies to all heads or, if `per_layer`, to the heads of each
// layer. Heads with equal scores are ordered by kind, layer and head. Throws Error(usage) that names the option `where`
// if no head is selected, or if `amount` exceeds the number of heads.
HeadSet least_important_heads(const std::map<AttentionKind, LayerScores>& scores, const PruneAmount& amount,
                              bool per_layer, const std::string& where);

// Throws the errors of least_important_heads() for the layers of `kinds`, but needs no scores. `has_groups`: whether
// groups of heads are pruned (groups.h) instead of heads.
void check_prune_amount(model::LanguageModel& model, SideSelection side, const Kinds& kinds, const PruneAmount& amount,
                        bool per_layer, const std::string& where, bool has_groups = false);

// Returns the head side that corresponds to `side`; `value` if `side` is `whole`.
attention::HeadSide head_side_of(SideSelection side);

// The heads that remain in each pruned layer, by kind of attention and layer.
using RemainingHeadsByLayer = std::map<AttentionKind, std::map<int64_t, attention::RemainingHeads>>;

// Returns the heads that remain after pruning the heads `pruned_heads` of this side. Score or output heads that cannot
// be pruned separately (AttentionLayer::can_prune_separately) are pruned together with the value heads. Throws
// Error(usage) that names the option `where` if `pruned_heads` is empty or the model lacks a head; if `side` is `whole`
// but a layer has different numbers of score, value and output heads; or if the heads of `side` cannot be pruned
// separately from the value heads.
RemainingHeadsByLayer heads_after_pruning(model::LanguageModel& model, const HeadSet& pruned_heads, SideSelection side,
                                          const std::string& where);

struct PrunedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
};

// Returns the pruned model, with the remaining parameters of `model`. Throws Error(usage) if a stage does not support
// pruning these heads.
PrunedModel prune_heads(const model::ModelConfig& config, model::LanguageModel& model,
                        const RemainingHeadsByLayer& remaining_heads);

// Copies the parameters of the full model to the parameters of the pruned model, without the blocks of pruned heads.
// `remaining_heads`: the heads that remain in each pruned layer.
void copy_remaining_parameters(nn::ParameterList& full_parameters, const RemainingHeadsByLayer& remaining_heads,
                               nn::ParameterList& pruned_parameters);

}  // namespace mh::analysis
