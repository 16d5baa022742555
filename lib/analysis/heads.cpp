// Parses and prints names of kinds, layers and heads.
#include "analysis/heads.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

Kinds kinds_named(const std::vector<std::string>& names, const nn::ParameterList& parameters,
                  const std::string& where) {
  const auto head_counts = head_counts_of(parameters);
  std::vector<std::string> kind_names;
  for (const auto& [kind, layers] : head_counts) kind_names.emplace_back(name_of(kind));
  Kinds kinds;
  for (const std::string& name : names) {
    const AttentionKind kind = kind_named(name, where);
    if (head_counts.count(kind) == 0)
      refuse_usage(where, str("kinds of attention that the model has: ", join(kind_names, ", ")), name,
                   "choose one of these kinds");
    kinds.insert(kind);
  }
  return kinds;
}

std::string prefix_of(AttentionKind kind, int64_t layer) {
  const auto name_components = split(name_of(kind), '.');
  return str(name_components[0], ".layers.", layer, ".", name_components[1]);
}

std::optional<LayerId> layer_of(const std::string& parameter) {
  const auto name_components = split(parameter, '.');
  if (name_components.size() < 5 || name_components[1] != "layers" || name_components[2].empty() ||
      name_components[2].size() > 9 || name_components[2].find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  for (AttentionKind kind : attention::kAttentionKinds)
    if (name_components[0] + "." + name_components[3] == name_of(kind))
      return LayerId{kind, std::stoll(name_components[2])};
  return std::nullopt;
}

std::map<AttentionKind, std::vector<int64_t>> head_counts_of(const nn::ParameterList& parameters) {
  std::map<AttentionKind, std::vector<int64_t>> head_counts;
  for (const nn::Parameter& p : parameters.all()) {
    const auto layer = layer_of(p.name());
    if (!layer) continue;
    auto& layers = head_counts[layer->kind];
    if (static_cast<int64_t>(layers.size()) <= layer->layer) layers.resize(static_cast<size_t>(layer->layer) + 1);
    if (p.traits().role != nn::HeadRole::projection) continue;
    // A grouped layer has no axis of value heads, but as many value heads as score heads.
    int64_t& count = layers[static_cast<size_t>(layer->layer)];
    for (const nn::HeadAxis& axis : p.traits().head_axes)
      if (axis.side == nn::HeadSide::value || (axis.side == nn::HeadSide::score && count == 0)) count = axis.heads;
  }
  return head_counts;
}

std::string names_of(const std::vector<AttentionKind>& kinds) {
  std::vector<std::string> names;
  for (const AttentionKind kind : kinds) names.push_back(name_of(kind));
  return join(names, ", ");
}

std::string names_of(const std::map<AttentionKind, std::vector<int64_t>>& head_counts) {
  std::vector<AttentionKind> kinds;
  for (const auto& [kind, layers] : head_counts) kinds.push_back(kind);
  return names_of(kinds);
}

HeadSet parse_heads(const std::vector<std::string>& texts, const std::vector<AttentionKind>& kinds,
                    const std::string& where, bool has_kind_option) {
  static const std::regex pattern(R"((?:([a-z.]+):)?(\d{1,9}):(\d{1,9}))");
  HeadSet heads;
  for (const std::string& text : texts) {
    std::smatch match;
    auto refuse = [&](const std::string& expected, const char* advice, const char* violation = "") {
      refuse_usage(where, expected, str("'", text, "'", violation), advice);
    };
    if (!std::regex_match(text, match, pattern))
      refuse("LAYER:HEAD or KIND:LAYER:HEAD, counted from 0", "for example 0:1,0:3,5:7");
    if (!match[1].matched && kinds.size() != 1)
      refuse("KIND:LAYER:HEAD, for a model with several kinds of attention", "for example decoder.self:0:1");
    const AttentionKind kind = match[1].matched ? kind_named(match[1], where) : kinds[0];
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      refuse(str("a kind of attention that the model has", has_kind_option ? " and --kind includes: " : ": ",
                 names_of(kinds)),
             has_kind_option ? "choose heads of such a kind, or change --kind" : "choose heads of such a kind");
    if (!heads[kind].insert({std::stoll(match[2]), std::stoll(match[3])}).second)
      refuse("each head once", "remove the duplicate", ", which repeats a head of the list");
  }
  return heads;
}

double parse_fraction(const std::string& text, const std::string& where) {
  static const std::regex pattern(R"((\d{1,3}(?:\.\d{1,9})?)%)");
  std::smatch match;
  if (std::regex_match(text, match, pattern))
    if (const double percent = std::stod(match[1]); percent <= 100) return percent / 100;
  static const std::regex number_from_1_to_100(R"((?:[1-9]\d?(?:\.\d{1,9})?|100))");
  refuse_usage(where, "a percentage with a percent sign, from 0% to 100%", text,
               std::regex_match(text, number_from_1_to_100) ? "write " + text + "%" : "for example 30%");
}

}  // namespace mh::analysis
