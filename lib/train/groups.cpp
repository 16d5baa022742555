#include "train/groups.h"

#include <fnmatch.h>

#include "base/text.h"

namespace mh::train {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

std::vector<model::Parameter*> find_matching(model::ParameterList& parameters, const std::string& pattern,
                                             const Problem& none) {
  std::vector<model::Parameter*> found;
  for (model::Parameter& p : parameters.all())
    if (p.traits().trainable && matches(pattern, p.name())) found.push_back(&p);
  if (found.empty()) throw Error(Exit::usage, none);
  return found;
}

void Groups::read(Config& config) {
  for (const std::string& key : config.keys_below("train.groups")) groups_[key.substr(0, key.find('.'))] = {};
  for (auto& [name, group] : groups_) {
    config.read("train.groups." + name, group);
    if (group.match.empty())
      throw Error(Exit::usage, Problem{"train.groups." + name + ".match", "patterns of parameter names", "none",
                                       "such as [\"*.gate.*\"]"});
    if (group.lr > 0 && group.lr_factor != 1)
      throw Error(Exit::usage, Problem{"train.groups." + name, "lr or lr_factor", "both", ""});
  }
}

std::string Groups::toml() const {
  TomlWriter writer;
  for (const auto& [name, group] : groups_) {
    GroupOptions copy = group;
    writer.section("train.groups." + name, copy);
  }
  return writer.text();
}

const GroupOptions* Groups::of(const std::string& parameter) const {
  for (const auto& [name, group] : groups_)
    for (const std::string& pattern : group.match)
      if (matches(pattern, parameter)) return &group;
  return nullptr;
}

void Groups::check(const model::ParameterList& parameters) const {
  std::vector<std::string> names;
  for (const model::Parameter& p : parameters.all()) names.push_back(p.name());
  for (const auto& [name, group] : groups_)
    for (const std::string& pattern : group.match) {
      bool found = false;
      for (const std::string& parameter : names) found = found || matches(pattern, parameter);
      if (!found)
        throw Error(Exit::usage, Problem{"train.groups." + name + ".match", "a pattern that some parameter matches",
                                         "'" + pattern + "'", did_you_mean(pattern, names)});
    }
}

}  // namespace mh::train
