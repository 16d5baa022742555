// Converts between heads and groups of heads.
#include "analysis/groups.h"

#include <algorithm>
#include <set>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

int64_t num_groups(const attention::LayerSpec& s) { return s.is_grouped() ? s.kv_heads : s.value_heads; }

int64_t group_of(const attention::LayerSpec& s, int64_t head) {
  return s.is_grouped() ? s.kv_head_of[static_cast<size_t>(head)] : head;
}

}  // namespace

const char* name_of(HeadUnit unit) { return kHeadUnitNames[unit == HeadUnit::group ? 1 : 0]; }

HeadUnit head_unit_named(const std::string& name) {
  return name == name_of(HeadUnit::group) ? HeadUnit::group : HeadUnit::head;
}

void check_unit(HeadUnit unit, SideSelection side, const std::string& where) {
  if (unit == HeadUnit::group && side != SideSelection::whole)
    refuse_usage(where, str("head with --side ", name_of(side), ", since a group has all sides of its heads"), "group",
                 str("leave ", where, " or --side out"));
}

HeadSet all_groups(model::LanguageModel& model, const Kinds& kinds) {
  HeadSet groups;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    for (int64_t group = contains(kinds, s.kind) ? num_groups(s) : 0; group-- > 0;)
      groups[s.kind].insert({s.layer, group});
  }
  return groups;
}

HeadSet heads_of_groups(model::LanguageModel& model, const HeadSet& groups, const std::string& where) {
  const HeadSet available_groups = all_groups(model, {});
  for (const auto& [kind, kind_groups] : groups)
    for (const Head& group : kind_groups)
      if (const auto available = available_groups.find(kind);
          available == available_groups.end() || !available->second.contains(group))
        refuse_usage(where, "a group of heads that the model has",
                     str(name_of(kind), ", layer ", group.layer, ", group ", group.head),
                     "choose a group of this layer, or another layer; mh-prune scan --unit group lists the groups");
  HeadSet heads;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    const auto kind_groups = groups.find(s.kind);
    if (kind_groups == groups.end()) continue;
    for (int64_t head = 0; head < s.value_heads; ++head)
      if (kind_groups->second.contains({s.layer, group_of(s, head)})) heads[s.kind].insert({s.layer, head});
  }
  return heads;
}

int64_t group_size_of(model::LanguageModel& model, const std::vector<HeadPair>& pairs, const std::string& where) {
  std::set<int64_t> sizes;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    const bool is_in_pair = std::ranges::any_of(pairs, [&](const HeadPair& pair) {
      return pair.kind == s.kind && (pair.a.layer == s.layer || pair.b.layer == s.layer);
    });
    if (!is_in_pair) continue;
    for (int64_t group = 0; group < num_groups(s); ++group)
      sizes.insert(s.is_grouped() ? std::ranges::count(s.kv_head_of, group) : 1);
  }
  if (sizes.size() > 1)
    refuse_usage(where, "layers whose groups all have the same number of heads",
                 str("groups of ", *sizes.begin(), " to ", count_of(*sizes.rbegin(), "head")),
                 "swap single heads (--unit head), or swap groups of other layers");
  return sizes.empty() ? 1 : *sizes.begin();
}

std::map<AttentionKind, LayerScores> sum_by_group(model::LanguageModel& model,
                                                  const std::map<AttentionKind, LayerScores>& scores) {
  std::map<AttentionKind, LayerScores> sums;
  for (const auto& [kind, layers] : scores) sums[kind].resize(layers.size());
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    const auto kind_scores = scores.find(s.kind);
    if (kind_scores == scores.end()) continue;
    const auto& head_scores = kind_scores->second[static_cast<size_t>(s.layer)];
    auto& group_scores = sums[s.kind][static_cast<size_t>(s.layer)];
    group_scores.resize(static_cast<size_t>(num_groups(s)));
    for (size_t head = 0; head < head_scores.size(); ++head)
      group_scores[static_cast<size_t>(group_of(s, static_cast<int64_t>(head)))] += head_scores[head];
  }
  return sums;
}

}  // namespace mh::analysis
