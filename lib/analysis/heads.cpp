// Parses and prints names of kinds, layers and heads.
#include "analysis/heads.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

constexpr AttentionKind kKinds[] = {AttentionKind::encoder_self, AttentionKind::decoder_self,
                                    AttentionKind::decoder_cross};

}  // namespace

AttentionKind kind_named(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (AttentionKind kind : kKinds) {
    if (name == name_of(kind)) return kind;
    names.emplace_back(name_of(kind));
  }
  throw Error(Exit::usage,
              Problem{where, str("one of: ", join(names, ", ")), str("'", name, "'"), did_you_mean(name, names)});
}

Kinds kinds_named(const std::vector<std::string>& names, const nn::ParameterList& parameters,
                  const std::string& where) {
  const auto existing = heads_of(parameters);
  std::vector<std::string> all;
  for (const auto& [kind, layers] : existing) all.emplace_back(name_of(kind));
  Kinds kinds;
  for (const std::string& name : names) {
    const AttentionKind kind = kind_named(name, where);
    if (existing.count(kind) == 0)
      throw Error(Exit::usage,
                  Problem{where, str("kinds of attention that the model has: ", join(all, ", ")), name, ""});
    kinds.insert(kind);
  }
  return kinds;
}

std::string prefix_of(AttentionKind kind, int64_t layer) {
  const auto parts = split(name_of(kind), '.');
  return str(parts[0], ".layers.", layer, ".", parts[1]);
}

std::optional<LayerName> layer_of(const std::string& parameter) {
  const auto parts = split(parameter, '.');
  if (parts.size() < 5 || parts[1] != "layers" || parts[2].empty() || parts[2].size() > 9 ||
      parts[2].find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  for (AttentionKind kind : kKinds)
    if (parts[0] + "." + parts[3] == name_of(kind)) return LayerName{kind, std::stoll(parts[2])};
  return std::nullopt;
}

std::map<AttentionKind, std::vector<int64_t>> heads_of(const nn::ParameterList& parameters) {
  std::map<AttentionKind, std::vector<int64_t>> all;
  for (const nn::Parameter& p : parameters.all()) {
    const auto where = layer_of(p.name());
    if (!where) continue;
    auto& layers = all[where->kind];
    if (static_cast<int64_t>(layers.size()) <= where->layer) layers.resize(static_cast<size_t>(where->layer) + 1);
    if (p.traits().role != nn::HeadRole::projection) continue;
    for (const nn::HeadAxis& axis : p.traits().head_axes)
      if (axis.side == nn::HeadSide::value) layers[static_cast<size_t>(where->layer)] = axis.heads;
  }
  return all;
}

std::string names_of(const std::vector<AttentionKind>& kinds) {
  std::vector<std::string> names;
  for (const AttentionKind kind : kinds) names.push_back(name_of(kind));
  return join(names, ", ");
}

std::string names_of(const std::map<AttentionKind, std::vector<int64_t>>& heads) {
  std::vector<AttentionKind> kinds;
  for (const auto& [kind, layers] : heads) kinds.push_back(kind);
  return names_of(kinds);
}

HeadSet parse_heads(const std::vector<std::string>& texts, const std::vector<AttentionKind>& kinds,
                    const std::string& where) {
  static const std::regex form(R"((?:([a-z.]+):)?(\d{1,9}):(\d{1,9}))");
  HeadSet heads;
  for (const std::string& text : texts) {
    std::smatch part;
    auto refuse = [&](const std::string& expected, const char* next) {
      throw Error(Exit::usage, Problem{where, expected, str("'", text, "'"), next});
    };
    if (!std::regex_match(text, part, form))
      refuse("LAYER:HEAD or KIND:LAYER:HEAD, counted from 0", "such as 0:1,0:3,5:7");
    if (!part[1].matched && kinds.size() != 1)
      refuse("KIND:LAYER:HEAD, for a model with several kinds of attention", "such as decoder.self:0:1");
    const AttentionKind kind = part[1].matched ? kind_named(part[1], where) : kinds[0];
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      refuse("one of the kinds of attention " + names_of(kinds), "");
    if (!heads[kind].insert({std::stoll(part[2]), std::stoll(part[3])}).second)
      refuse("each head once", "remove the duplicate");
  }
  return heads;
}

double parse_fraction(const std::string& text, const std::string& where) {
  static const std::regex form(R"((\d{1,3}(?:\.\d{1,9})?)%)");
  std::smatch part;
  if (std::regex_match(text, part, form))
    if (const double percent = std::stod(part[1]); percent <= 100) return percent / 100;
  throw Error(Exit::usage, Problem{where, "a percentage from 0% to 100%", text, "such as 30%"});
}

}  // namespace mh::analysis
