// Parameter groups: parameters that are trained apart from the rest, chosen by patterns over their names.
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

// What a group sets apart; what it does not name is as [train] says.
struct GroupOptions {
  std::vector<std::string> match;
  bool frozen = false;
  Length freeze_until{0, Length::Unit::updates};
  std::string rule;
  double lr = 0;
  double lr_factor = 1;
  double momentum = -1;
  double weight_decay = -1;
  bool decay_norms_and_biases = true;
  void describe(Fields& f) {
    f.field("match", match, "Names of the parameters; * matches any characters, ? one character.");
    f.field("frozen", frozen, "Whether the parameters never change.");
    f.field("freeze_until", freeze_until, "Time until which the parameters are frozen; 0u: not frozen.");
    f.field("rule", rule, "Update rule; empty: train.optimizer.rule", {"", "adamw", "sgd", "nag"});
    f.field("lr", lr, "Constant learning rate; 0: the schedule's.", at_least(0));
    f.field("lr_factor", lr_factor, "Factor of the schedule's learning rate.", at_least(0));
    f.field("momentum", momentum,
            "Momentum of sgd and nag; -1: 0 with a rule of the group's own, else train.optimizer.momentum.",
            between(-1, 1));
    f.field("weight_decay", weight_decay, "Weight decay; -1: train.optimizer.weight_decay.", at_least(-1));
    f.field("decay_norms_and_biases", decay_norms_and_biases,
            "Whether adamw decays layer norms and biases too, where rule is adamw; where it is empty, "
            "train.optimizer.decay_norms_and_biases says so.");
  }
};

class Groups {
 public:
  // Reads every [train.groups.NAME]. Error(usage) for one without a pattern, or with two keys of which one is in vain.
  void read(Config& config);
  void describe(Fields& f);
  std::string toml() const;
  // For a new run of a model: without freeze_until, and without patterns, or groups, that match none of its parameters.
  void renew(const nn::ParameterList& parameters);
  bool empty() const { return groups_.empty(); }

  // The group of a parameter: the first, by name, with a pattern that matches; null where none does.
  const GroupOptions* of(const std::string& parameter) const;
  // Error(usage) where a pattern matches no parameter of the model, where a group is left no parameter that trains, and
  // where something it sets has no effect. `rule`: train.optimizer.rule.
  void check(const nn::ParameterList& parameters, const std::string& rule) const;

 private:
  // In which groups the parameters are that a group matches and is left none of.
  std::string taken(const nn::ParameterList& parameters, const GroupOptions& group) const;
  std::map<std::string, GroupOptions> groups_;
};

// Whether `name` matches a pattern of * and ?.
bool matches(const std::string& pattern, const std::string& name);

// The trainable parameters that match a pattern: what a term of the loss or a procedure acts on. Error(usage) with the
// problem as given where there is none.
std::vector<nn::Parameter*> find_matching(nn::ParameterList& parameters, const std::string& pattern,
                                          const Problem& none);

}  // namespace mh::train
