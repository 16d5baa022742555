// Configuration keys and values of earlier versions. Configurations, `--set` assignments and the TOML stored in
// checkpoints and training states pass through this table, so that old ones keep their meaning. A renamed key keeps the
// old meaning of its values: `train.optimizer = "adamw"` excluded norms and biases from decay, whereas
// `train.optimizer.rule = "adamw"` decays them unless train.optimizer.decay_norms_and_biases is false.
#pragma once

#include <string>
#include <vector>

namespace mh {

struct Assignment {
  std::string key;
  std::string text;  // value in TOML syntax
};

// Returns the present form of an assignment: the same one, or that of a renamed key or value, which may be several.
// `origin`: where the assignment comes from. Throws Error(usage) for a value that had two meanings.
std::vector<Assignment> present_form(const Assignment& assignment, const std::string& origin);

}  // namespace mh
