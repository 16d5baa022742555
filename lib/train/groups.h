// Parameter groups: parameters with training options of their own, chosen by patterns of their names.
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

// Options of a group; options that it does not set come from [train].
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
            "Whether adamw decays layer norms and biases too, for rule = adamw; with an empty rule, "
            "train.optimizer.decay_norms_and_biases applies.");
  }
};

class Groups {
 public:
  // Reads every [train.groups.NAME]. Throws Error(usage) for a group without a pattern, or with two keys of which one
  // has no effect.
  void read(Config& config);
  void describe(Fields& f);
  std::string toml() const;
  // Adapts the groups to a new run of a model: drops freeze_until, and patterns and groups that match no parameter.
  void renew(const nn::ParameterList& parameters);
  bool empty() const { return groups_.empty(); }

  // Returns the group of a parameter: the first by name with a matching pattern; null if no pattern matches.
  const GroupOptions* of(const std::string& parameter) const;
  // Throws Error(usage) if a pattern matches no parameter of the model, if a group is left without a trainable
  // parameter, or if one of its options has no effect. `rule`: train.optimizer.rule.
  void check(const nn::ParameterList& parameters, const std::string& rule) const;

 private:
  // Returns, for an error, which groups take all parameters that `group` matches.
  std::string taken(const nn::ParameterList& parameters, const GroupOptions& group) const;
  std::map<std::string, GroupOptions> groups_;
};

// Returns whether `name` matches a pattern of * and ?.
bool matches(const std::string& pattern, const std::string& name);

// Returns the trainable parameters that match a pattern. Throws Error(usage) with the problem `none` if there are none.
std::vector<nn::Parameter*> find_matching(nn::ParameterList& parameters, const std::string& pattern,
                                          const Problem& none);

}  // namespace mh::train
