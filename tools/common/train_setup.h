// What the tools that train share: their options, and the run that these make.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/tool.h"
#include "common/model_options.h"
#include "io/checkpoint.h"

namespace mh::train {
class Trainer;
}

namespace mh::train_setup {

struct Arguments : ModelArguments {
  std::vector<std::string> configs, sets, only;
  std::string train, valid, out, from, format = "table";
  bool resume = false, dry_run = false;
  // Whether a run that begins with a checkpoint takes over how its model is trained (train/finetune.h).
  bool takes_over = false;
  std::string from_option;  // that names the checkpoint, such as "--from"
  int64_t seed = -1;
  int64_t seeds = 0;  // of mh-finetune: runs; 0: one, in the folder itself
};

// Adds all options but those that only one tool has. `from_help`: what `from_option` does.
void add_options(CLI::App& app, Arguments& a, const std::string& from_option, const std::string& from_help);

// The checkpoint that the run begins with, or null.
std::unique_ptr<io::Checkpoint> beginning(const Arguments& a);
// The configuration that the options make: the model of that checkpoint, files, then single keys, later ones winning.
// Error(usage) where it no longer has the checkpoint's parameters.
Config configuration(const Arguments& a, const io::Checkpoint* from);

// The run that the arguments make.
std::unique_ptr<train::Trainer> prepare(const Arguments& a);
// Trains, or shows what it would.
void run(const Arguments& a, Tool& tool);
// Prints what a configuration would build. Needs data only where it does not say how large the vocabulary is.
void dry_run(const Arguments& a);

// Writes to standard output.
void print(const std::string& text);

}  // namespace mh::train_setup
