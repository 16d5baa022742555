// Combines the configuration of a run from its sources. In this order, later sources override earlier ones:
//
//   checkpoint            the model from which the run starts; in fine-tuning also the sections of finetune.h and the
//                         keys of an output head that fits the labels of the first training shard
//   run folder            the resolved configuration of a resumed run
//   configuration files
//   options               values of command-line options, such as --train
//   assignments           KEY=VALUE, such as the values of --set
//   default               a fine-tuning run without train.length gets one epoch
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "io/checkpoint.h"

namespace mh::train {

// The value of a command-line option that sets a configuration key.
struct OptionValue {
  std::string key;                 // such as "data.train"
  std::vector<std::string> texts;  // not parsed as TOML; several texts set a list
  std::string option;              // such as "--train", for error messages
};

struct ConfigSources {
  const io::Checkpoint* checkpoint = nullptr;  // checkpoint from which the run starts; null: random start, or a resume
  std::string checkpoint_name;  // option and value that name the checkpoint, for error messages: "--from a.safetensors"
  bool is_finetuning = false;   // whether the run inherits options, and may load a part of the checkpoint
  std::string first_train_path;     // first training shard; empty: the configuration names the shards
  std::string resumed_config_path;  // resolved configuration of the resumed run; empty: no resume
  std::vector<std::string> config_paths;
  std::vector<OptionValue> options;
  std::vector<std::string> assignments;
};

// Returns the combined configuration. Logs what fine-tuning inherits and defaults that it sets. Throws Error(usage) if
// a model of this configuration cannot load the parameters of the checkpoint, and the errors of Config.
Config combine_config(const ConfigSources& sources);

}  // namespace mh::train
