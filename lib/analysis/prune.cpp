// Selects the heads that remain after pruning, builds the pruned model and copies its parameters.
#include "analysis/prune.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "analysis/groups.h"
#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

using attention::AttentionLayer;
using attention::HeadSide;
using attention::RemainingHeads;

AttentionLayer& require_layer(model::LanguageModel& model, AttentionKind kind, int64_t layer,
                              const std::string& where) {
  int64_t num_layers = 0;
  AttentionLayer* matching_layer = nullptr;
  for (AttentionLayer* candidate : model.attention_layers()) {
    if (candidate->layer_spec().kind != kind) continue;
    ++num_layers;
    if (candidate->layer_spec().layer == layer) matching_layer = candidate;
  }
  if (num_layers == 0)
    refuse_usage(where, "a kind of attention that the model has: " + names_of(head_counts_of(model.parameters())),
                 name_of(kind), "choose heads of such a kind");
  if (matching_layer == nullptr)
    refuse_usage(where, str("a layer from 0 to ", num_layers - 1), str(layer), "choose a layer in this range");
  return *matching_layer;
}

RemainingHeads find_remaining_heads(const AttentionLayer& layer, const std::set<int64_t>& pruned_heads,
                                    SideSelection side, const std::string& where) {
  const attention::LayerSpec& layer_spec = layer.layer_spec();
  auto refuse = [&](const std::string& expected, const std::string& found, const char* advice) {
    refuse_usage(str(where, ", ", layer_spec.name), expected, found, advice);
  };
  const HeadSide pruned_side = head_side_of(side);
  const int64_t num_heads = layer_spec.num_heads_of(pruned_side);
  if (num_heads == 0) refuse("a layer with heads", "a layer without heads", "choose heads of another layer");
  if (*pruned_heads.rbegin() >= num_heads || *pruned_heads.begin() < 0)
    refuse(str("a head from 0 to ", num_heads - 1),
           str(*pruned_heads.begin() < 0 ? *pruned_heads.begin() : *pruned_heads.rbegin()),
           "choose a head in this range");
  if (side == SideSelection::whole && (layer_spec.heads != num_heads || layer_spec.output_heads != num_heads))
    refuse("equal numbers of score, value and output heads, since the default, --side whole, prunes all three",
           str(layer_spec.heads, " score heads, ", num_heads, " value heads and ", layer_spec.output_heads,
               " output heads"),
           "use --side score, value or output");
  if (!layer.can_prune_separately(pruned_side))
    refuse(
        str(pruned_side == HeadSide::score ? "a mixer that changes the number of heads" : "a combiner that mixes heads",
            ", which --side ", name_of(side), " requires"),
        str("no ",
            pruned_side == HeadSide::score ? "mixer that changes the number of heads" : "combiner that mixes heads"),
        "use --side whole");
  // Score or output heads that cannot be pruned separately are pruned together with the value heads.
  auto remaining_heads_of = [&](HeadSide queried_side) {
    const bool is_pruned = side == SideSelection::whole || queried_side == pruned_side ||
                           (pruned_side == HeadSide::value && !layer.can_prune_separately(queried_side));
    std::vector<int64_t> remaining_indices;
    for (int64_t head = 0; head < layer_spec.num_heads_of(queried_side); ++head)
      if (!is_pruned || pruned_heads.count(head) == 0) remaining_indices.push_back(head);
    return remaining_indices;
  };
  RemainingHeads remaining_heads{remaining_heads_of(HeadSide::score), remaining_heads_of(HeadSide::value),
                                 remaining_heads_of(HeadSide::output)};
  if (layer_spec.is_grouped()) {
    std::set<int64_t> kv_heads;
    for (const int64_t head : remaining_heads.score) kv_heads.insert(layer_spec.kv_head_of[static_cast<size_t>(head)]);
    remaining_heads.key_value.assign(kv_heads.begin(), kv_heads.end());
  }
  return remaining_heads;
}

// Returns the tensor of parameter p without the blocks of heads that are not in `remaining_heads`. Axes with
// HeadAxis::survives_pruning are unchanged.
at::Tensor without_pruned_blocks(const nn::Parameter& p, const RemainingHeads& remaining_heads) {
  at::Tensor remaining_blocks = p.master().detach();
  for (const nn::HeadAxis& axis : p.traits().head_axes) {
    if (axis.survives_pruning) continue;
    const at::Tensor heads = at::tensor(remaining_heads.heads_of(axis.side), at::kLong).to(remaining_blocks.device());
    remaining_blocks =
        remaining_blocks.unflatten(axis.axis, {axis.heads, remaining_blocks.size(axis.axis) / axis.heads})
            .index_select(axis.axis, heads)
            .flatten(axis.axis, axis.axis + 1);
  }
  return remaining_blocks;
}

// Returns the parameter of the full model that corresponds to `name` in the pruned model: the parameter of this name
// or, if the full model has none, the parameter that the layers of the stack share.
const nn::Parameter& full_parameter_of(nn::ParameterList& full_parameters, const std::string& name) {
  if (const nn::Parameter* own_parameter = full_parameters.find(name)) return *own_parameter;
  if (const auto layer = layer_of(name)) {
    const std::string shared_name =
        name.substr(0, name.find('.')) + name.substr(prefix_of(layer->kind, layer->layer).size());
    if (const nn::Parameter* p = full_parameters.find(shared_name)) return *p;
  }
  throw Error(Exit::failed, Problem{name, "a parameter of this name in the model before pruning", "none",
                                    "report a defect of multihead"});
}

}  // namespace

void check_prune_amount(model::LanguageModel& model, SideSelection side, const Kinds& kinds, const PruneAmount& amount,
                        bool per_layer, const std::string& where, bool has_groups) {
  std::map<AttentionKind, LayerScores> zero_scores;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    if (const attention::LayerSpec& s = layer->layer_spec(); contains(kinds, s.kind))
      zero_scores[s.kind].emplace_back(s.num_heads_of(head_side_of(side)));
  least_important_heads(has_groups ? sum_by_group(model, zero_scores) : zero_scores, amount, per_layer, where);
}

attention::HeadSide head_side_of(SideSelection side) {
  return side == SideSelection::score    ? HeadSide::score
         : side == SideSelection::output ? HeadSide::output
                                         : HeadSide::value;
}

HeadSet least_important_heads(const std::map<AttentionKind, LayerScores>& scores, const PruneAmount& amount,
                              bool per_layer, const std::string& where) {
  const auto ranked_heads = rank_heads(scores, per_layer);
  const auto group_key = [&](const RankedHead& r) {
    return per_layer ? std::pair(r.kind, r.head.layer) : std::pair(AttentionKind{}, int64_t{-1});
  };
  std::map<std::pair<AttentionKind, int64_t>, int64_t> group_sizes;
  for (const RankedHead& r : ranked_heads) ++group_sizes[group_key(r)];
  HeadSet selected_heads;
  for (const RankedHead& r : ranked_heads) {
    const int64_t num_heads = group_sizes.at(group_key(r));
    constexpr double kRoundingMargin = 1e-9;  // so that 0.58 · 50 = 28.999999999999996 is rounded down to 29, not to 28
    const auto num_pruned =
        amount.count > 0 ? amount.count
                         : static_cast<int64_t>(amount.fraction * static_cast<double>(num_heads) + kRoundingMargin);
    if (num_pruned > num_heads)
      refuse_usage(
          where, str("at most ", num_heads, ", the number of heads", per_layer ? str(" of layer ", r.head.layer) : ""),
          str(num_pruned), "lower " + where);
    if (r.rank <= num_pruned) selected_heads[r.kind].insert(r.head);
  }
  if (selected_heads.empty())
    refuse_usage(where, "at least one head to prune", "0 heads, after rounding down", "raise " + where);
  return selected_heads;
}

RemainingHeadsByLayer heads_after_pruning(model::LanguageModel& model, const HeadSet& pruned_heads, SideSelection side,
                                          const std::string& where) {
  RemainingHeadsByLayer remaining_heads;
  for (const auto& [kind, heads] : pruned_heads) {
    std::map<int64_t, std::set<int64_t>> layers;
    for (const Head& head : heads) layers[head.layer].insert(head.head);
    for (const auto& [layer, pruned_indices] : layers)
      remaining_heads[kind][layer] =
          find_remaining_heads(require_layer(model, kind, layer, where), pruned_indices, side, where);
  }
  if (remaining_heads.empty()) refuse_usage(where, "heads to prune", "none", "choose at least one head");
  return remaining_heads;
}

PrunedModel prune_heads(const model::ModelConfig& config, model::LanguageModel& model,
                        const RemainingHeadsByLayer& remaining_heads) {
  PrunedModel pruned_model{config, nullptr};
  for (const auto& [kind, layers] : remaining_heads)
    for (const auto& [layer, heads] : layers)
      pruned_model.config.attention.set_layer(kind, layer,
                                              require_layer(model, kind, layer, "cut").options_after_pruning(heads));
  pruned_model.model =
      model::build_language_model(pruned_model.config, model.vocabulary_sizes(), model.parameters().device());
  copy_remaining_parameters(model.parameters(), remaining_heads, pruned_model.model->parameters());
  return pruned_model;
}

void copy_remaining_parameters(nn::ParameterList& full_parameters, const RemainingHeadsByLayer& remaining_heads,
                               nn::ParameterList& pruned_parameters) {
  const c10::NoGradGuard no_gradient;
  for (nn::Parameter& p : pruned_parameters.all()) {
    const nn::Parameter& source = full_parameter_of(full_parameters, p.name());
    at::Tensor remaining_values = source.master();
    if (const auto layer = layer_of(p.name()))
      if (const auto kind_layers = remaining_heads.find(layer->kind); kind_layers != remaining_heads.end())
        if (const auto heads = kind_layers->second.find(layer->layer); heads != kind_layers->second.end())
          remaining_values = without_pruned_blocks(source, heads->second);
    if (remaining_values.sizes() != p.master().sizes())
      throw Error(Exit::failed,
                  Problem{p.name(), str("the shape ", shape_text(p.master().sizes()), " of the pruned model"),
                          str("the shape ", shape_text(remaining_values.sizes()), " after removing the pruned heads"),
                          "report a defect of multihead"});
    p.master().copy_(remaining_values);
  }
  pruned_parameters.refresh_bf16_copies();
}

}  // namespace mh::analysis
