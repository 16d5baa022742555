// The options of the tools that train (mh-train, mh-finetune), and the training run that these options describe.
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
  std::vector<std::string> config_paths, assignments, trainable_names, train_paths;
  std::string valid_path, out_folder, checkpoint_path, format = "table";
  bool resume = false, dry_run = false;
  // Whether a run that starts from a checkpoint inherits the checkpoint's training procedure (train/finetune.h).
  bool inherits_training = false;
  std::string checkpoint_option;  // name of the option for the checkpoint, such as "--from"
  int64_t seed = -1;              // random seed; -1: not set on the command line
  int64_t num_processes = 1;      // number of processes that a dry run describes
  int64_t num_seeds = 0;          // mh-finetune: number of runs; 0: a single run in the folder --out itself
  // Options that have an effect only with or without --dry-run.
  CLI::Option *out_option = nullptr, *format_option = nullptr, *threads_option = nullptr, *seeds_option = nullptr;
};

// Adds the options that mh-train and mh-finetune have in common. `checkpoint_option`: name of the option for the
// checkpoint, such as "--from"; `checkpoint_help`: its help text. Must be called after args.inherits_training is set.
void add_options(CLI::App& app, Arguments& args, const std::string& checkpoint_option,
                 const std::string& checkpoint_help);

// Opens the checkpoint that the run starts from; returns null if the run starts from scratch or is resumed.
std::unique_ptr<io::Checkpoint> initial_checkpoint(const Arguments& args);
// Returns the configuration of the run that the arguments describe (train/config_sources.h). `checkpoint`: result of
// initial_checkpoint().
Config run_configuration(const Arguments& args, const io::Checkpoint* checkpoint);

// Creates the trainer that the arguments describe.
std::unique_ptr<train::Trainer> make_trainer(const Arguments& args);
// Runs the training; with --dry-run, calls dry_run() instead.
void run(const Arguments& args, Tool& tool);
// Prints a summary of the model and the run without training. Needs data only if neither the configuration nor a
// checkpoint sets the size of the vocabulary.
void dry_run(const Arguments& args);

// Writes `text` to standard output.
void print_text(const std::string& text);

}  // namespace mh::train_setup
