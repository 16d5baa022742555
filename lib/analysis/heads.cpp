#include "analysis/heads.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

constexpr Kind kKinds[] = {Kind::encoder_self, Kind::decoder_self, Kind::decoder_cross};

}  // namespace

Kind kind_named(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (Kind kind : kKinds) {
    if (name == name_of(kind)) return kind;
    names.emplace_back(name_of(kind));
  }
  throw Error(Exit::usage,
              Problem{where, str("one of: ", join(names, ", ")), str("'", name, "'"), did_you_mean(name, names)});
}

std::string prefix_of(Kind kind, int64_t layer) {
  const auto parts = split(name_of(kind), '.');
  return str(parts[0], ".layers.", layer, ".", parts[1]);
}

std::optional<LayerName> layer_of(const std::string& parameter) {
  const auto parts = split(parameter, '.');
  if (parts.size() < 5 || parts[1] != "layers" || parts[2].empty() || parts[2].size() > 9 ||
      parts[2].find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  for (Kind kind : kKinds)
    if (parts[0] + "." + parts[3] == name_of(kind)) return LayerName{kind, std::stoll(parts[2])};
  return std::nullopt;
}

std::map<Kind, std::vector<int64_t>> heads_of(const model::ParameterList& parameters) {
  std::map<Kind, std::vector<int64_t>> all;
  for (const model::Parameter& p : parameters.all()) {
    const auto where = layer_of(p.name());
    if (!where) continue;
    auto& layers = all[where->kind];
    if (static_cast<int64_t>(layers.size()) <= where->layer) layers.resize(static_cast<size_t>(where->layer) + 1);
    if (p.traits().role != model::HeadRole::projection) continue;
    for (const model::HeadAxis& axis : p.traits().head_axes)
      if (axis.side == model::HeadSide::value) layers[static_cast<size_t>(where->layer)] = axis.heads;
  }
  return all;
}

}  // namespace mh::analysis
