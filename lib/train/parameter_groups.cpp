#include "train/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace mh::train {

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

std::vector<nn::Parameter*> find_parameters(nn::ParameterList& parameters, const std::string& pattern,
                                            const Problem& no_match_problem) {
  std::vector<nn::Parameter*> matching_parameters;
  for (nn::Parameter& p : parameters.all())
    if (p.traits().trainable && matches_pattern(pattern, p.name())) matching_parameters.push_back(&p);
  if (matching_parameters.empty()) throw Error(Exit::usage, no_match_problem);
  return matching_parameters;
}

namespace {

bool group_matches(const ParameterGroupOptions& group, const std::string& parameter) {
  return std::any_of(group.match.begin(), group.match.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, parameter); });
}

}  // namespace

void ParameterGroups::read(Config& config) {
  for (const std::string& key : config.keys_below("train.groups")) groups_[key.substr(0, key.find('.'))] = {};
  for (auto& [name, group] : groups_) {
    config.read("train.groups." + name, group);
    if (group.match.empty())
      refuse_usage("train.groups." + name + ".match", "patterns of parameter names", "no patterns",
                   "for example [\"*.gate.*\"]");
    if (group.lr > 0 && group.lr_factor != 1)
      refuse_usage("train.groups." + name, "either lr or lr_factor", "both", "leave lr or lr_factor out");
    std::vector<std::string> update_keys;  // keys set in this group that affect updates
    for (const auto& [key, is_set] : {std::pair{"freeze_until", group.freeze_until.count > 0},
                                      {"rule", !group.rule.empty()},
                                      {"lr", group.lr > 0},
                                      {"lr_factor", group.lr_factor != 1},
                                      {"momentum", group.momentum >= 0},
                                      {"weight_decay", group.weight_decay >= 0}})
      if (is_set) update_keys.emplace_back(key);
    if (!group.decay_norms_and_biases && group.rule != "adamw")
      refuse_usage("train.groups." + name + ".decay_norms_and_biases", "the key rule = \"adamw\" in the same group",
                   group.rule.empty() ? "no rule" : group.rule,
                   "set rule = \"adamw\", or leave decay_norms_and_biases out");
    if (group.is_frozen && !update_keys.empty())
      refuse_usage("train.groups." + name, "either frozen = true or keys that affect updates, such as lr",
                   "frozen = true with " + join(update_keys, ", "),
                   "leave frozen out; freeze_until freezes the group for a limited time");
  }
}

void ParameterGroups::describe(Fields& f) {
  for (auto& [name, group] : groups_) f.section("train.groups." + name, group);
}

std::string ParameterGroups::toml() const {
  TomlWriter writer;
  ParameterGroups copy = *this;
  copy.describe(writer);
  return writer.text();
}

void ParameterGroups::adapt_to_finetuning(const nn::ParameterList& parameters) {
  for (auto it = groups_.begin(); it != groups_.end();) {
    ParameterGroupOptions& group = it->second;
    group.freeze_until.count = 0;
    std::erase_if(group.match, [&](const std::string& pattern) {
      return std::none_of(parameters.all().begin(), parameters.all().end(),
                          [&](const nn::Parameter& p) { return matches_pattern(pattern, p.name()); });
    });
    it = group.match.empty() ? groups_.erase(it) : std::next(it);
  }
}

const ParameterGroupOptions* ParameterGroups::group_of(const std::string& parameter) const {
  for (const auto& [name, group] : groups_)
    if (group_matches(group, parameter)) return &group;
  return nullptr;
}

std::string ParameterGroups::reason_for_empty_group(const nn::ParameterList& parameters,
                                                    const ParameterGroupOptions& group) const {
  std::set<std::string> earlier_groups;
  for (const nn::Parameter& p : parameters.all()) {
    if (!p.traits().trainable) continue;
    for (const auto& [name, candidate] : groups_)
      if (&candidate == group_of(p.name()) && group_matches(group, p.name())) earlier_groups.insert(name);
  }
  if (earlier_groups.empty()) return "only parameters that are not trainable";
  return "all matching parameters in earlier groups: " + join({earlier_groups.begin(), earlier_groups.end()}, ", ");
}

void ParameterGroups::check(const nn::ParameterList& parameters, const std::string& train_rule) const {
  std::vector<std::string> parameter_names;
  for (const nn::Parameter& p : parameters.all()) parameter_names.push_back(p.name());
  for (const auto& [name, group] : groups_)
    for (const std::string& pattern : group.match) {
      bool has_match = false;
      for (const std::string& parameter : parameter_names) has_match = has_match || matches_pattern(pattern, parameter);
      if (has_match) continue;
      refuse_usage("train.groups." + name + ".match", "a pattern that matches a parameter of the model",
                   "'" + pattern + "', which matches no parameter",
                   did_you_mean(pattern, parameter_names, "mh-train --list tensors lists the names of parameters"));
    }
  std::map<const ParameterGroupOptions*, int64_t>
      num_parameters;  // number of trainable parameters of each group; null: parameters without a group
  for (const nn::Parameter& p : parameters.all())
    if (p.traits().trainable) ++num_parameters[group_of(p.name())];
  for (const auto& [name, group] : groups_) {
    const std::string& rule = group.rule.empty() ? train_rule : group.rule;
    if (group.momentum >= 0 && rule != "sgd" && rule != "nag")
      refuse_usage("train.groups." + name + ".momentum", "the update rule sgd or nag",
                   group.rule.empty() ? str(rule, ", the value of train.optimizer.rule") : rule,
                   "set rule to sgd or nag in this group, or leave momentum out");
    if (num_parameters.count(&group) == 0)
      refuse_usage("train.groups." + name, "a trainable parameter that is in no earlier group",
                   reason_for_empty_group(parameters, group),
                   "rename the group, since a parameter belongs to the first matching group in alphabetical "
                   "order of the group names, or narrow the patterns of the earlier groups");
  }
}

}  // namespace mh::train
