// Converts configuration keys and values of earlier versions. Config converts configuration files, `--set` assignments
// and the TOML in checkpoints and training states, so that configurations of earlier versions retain their meaning.
// A value under a renamed key retains its meaning, too: `train.optimizer = "adamw"` excluded norms and biases from
// decay, whereas `train.optimizer.rule = "adamw"` decays them unless train.optimizer.decay_norms_and_biases is false.
// Renamed options of the command line are not converted; the error for an old name states the new name.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mh {

struct Assignment {
  std::string key;
  std::string text;  // value in TOML syntax
};

// Returns the value of a key, in TOML syntax, in the configuration that contains the assignment; "" if there is none.
using FindValue = std::function<std::string(const std::string& key)>;

// Returns the assignments that have the meaning of `assignment` in this version: `assignment` itself, or one or more
// others if its key or value was renamed. `origin`: file and line, or option, of the assignment, for messages.
// `find_value`: called for the key `type` of the section of the assignment, since sections of different types had equal
// keys that now have different names. Throws Error(usage) for a value that had different meanings in earlier versions.
std::vector<Assignment> convert_renamed(const Assignment& assignment, const std::string& origin,
                                        const FindValue& find_value);

// Returns the key of the setting that transformers, PyTorch or fairseq call `name`, such as "train.lr" for
// "learning_rate"; "" for all other names. Configurations with such a name are refused, and the error names the key.
std::string key_of_foreign_name(const std::string& name);

// Returns the name in this version of an option of the command line that was renamed, such as "--missing-fraction" for
// "--missing-share"; "" for all other options.
std::string new_option_name(const std::string& option);

}  // namespace mh
