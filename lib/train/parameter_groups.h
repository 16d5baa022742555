// Parameter groups: sets of parameters, selected by patterns of their names, with their own learning rate, update rule
// and other training options.
//
//   [train.groups.gates]
//   match = ["*.gate.*"]
//   rule = "sgd"
//   lr = 1.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "nn/parameter.h"
#include "train/options.h"

namespace mh::train {

// Options of a parameter group: [train.groups.NAME].
struct ParameterGroupOptions {
  std::vector<std::string> match;
  bool is_frozen = false;
  Length freeze_until{0, Length::Unit::updates};
  std::string rule;
  double lr = 0;
  double lr_factor = 1;
  double momentum = -1;
  double weight_decay = -1;
  bool decay_norms_and_biases = true;
  void describe(Fields& f) {
    f.field("match", match,
            "patterns of the names of the group's parameters; * matches any characters, ? one character");
    f.field("frozen", is_frozen, "freeze the parameters of the group throughout training");
    f.field("freeze_until", freeze_until,
            "length of training for which the parameters of the group are frozen, such as 100u for 100 updates; 0u: "
            "not frozen");
    f.field("rule", rule, "update rule of the group; empty: train.optimizer.rule", {"", "adamw", "sgd", "nag"});
    f.field("lr", lr, "constant learning rate of the group; 0: learning rate of the schedule", at_least(0));
    f.field("lr_factor", lr_factor, "factor by which the group multiplies the learning rate of the schedule",
            at_least(0));
    f.field("momentum", momentum,
            "momentum of sgd and nag in the group; -1: train.optimizer.momentum, or 0 if the group sets its own rule",
            or_unset(-1, between(0, 1)));
    f.field("weight_decay", weight_decay, "weight decay of the group; -1: train.optimizer.weight_decay",
            or_unset(-1, at_least(0)));
    f.field("decay_norms_and_biases", decay_norms_and_biases,
            "with adamw: apply weight decay to layer norms and biases of the group too; only for a group that sets its "
            "own rule, otherwise train.optimizer.decay_norms_and_biases applies");
  }
};

class ParameterGroups {
 public:
  // Reads every section [train.groups.NAME]. Throws Error(usage) for a group without a pattern, for keys that
  // exclude each other, and for decay_norms_and_biases = false without rule = "adamw" in the same group.
  void read(Config& config);
  void describe(Fields& f);
  std::string toml() const;
  // Adapts the groups to the fine-tuning of a model: sets freeze_until to 0, and removes patterns and groups that match
  // no parameter.
  void adapt_to_finetuning(const nn::ParameterList& parameters);
  bool empty() const { return groups_.empty(); }

  // Returns the group of a parameter: among groups with a matching pattern, the first in alphabetical order of group
  // names; null if no pattern matches.
  const ParameterGroupOptions* group_of(const std::string& parameter) const;
  // Throws Error(usage) if a pattern matches no parameter of the model, if a group contains no trainable parameter, or
  // if a group sets momentum for a rule without momentum. `train_rule`: train.optimizer.rule.
  void check(const nn::ParameterList& parameters, const std::string& train_rule) const;

 private:
  // Returns, for an error, why `group` contains no trainable parameter: either its patterns match no trainable
  // parameter, or earlier groups, which the text names, contain all trainable parameters that match.
  std::string reason_for_empty_group(const nn::ParameterList& parameters, const ParameterGroupOptions& group) const;
  std::map<std::string, ParameterGroupOptions> groups_;
};

// Returns whether `name` matches a pattern, in which * matches any characters, ? one character, and [ab] a or b, as in
// fnmatch(3).
bool matches_pattern(const std::string& pattern, const std::string& name);

// Returns the trainable parameters whose names match a pattern. Throws Error(usage) with the problem `no_match_problem`
// if no parameter matches.
std::vector<nn::Parameter*> find_parameters(nn::ParameterList& parameters, const std::string& pattern,
                                            const Problem& no_match_problem);

}  // namespace mh::train
