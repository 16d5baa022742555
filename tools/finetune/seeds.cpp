// Runs mh-finetune for several seeds and prints a table of the scores.
#include "seeds.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "common/processes.h"
#include "train/seeds.h"
#include "train/trainer.h"

namespace mh::train_setup {

namespace {

using nlohmann::ordered_json;

ordered_json row_of(const std::string& seed, const ordered_json& update, const task::NamedScores& scores) {
  ordered_json row{{"seed", seed}, {"update", update}};
  for (const auto& [name, value] : scores) row[name] = value;
  return row;
}

// Throws Error(usage) if the checkpoint or a configuration file, which each run reads, is standard input or a named
// pipe.
void check_files(const Arguments& args) {
  const auto check = [](const std::string& path, const char* option, const char* content) {
    std::error_code ignored_error;  // ignored: opening the file later throws
    if (path != "-" && !std::filesystem::is_fifo(path, ignored_error)) return;
    refuse_usage("--seeds", str(option, " with a file, since each run reads the ", content),
                 (path == "-" ? "" : "the pipe ") + input_name(path), str("write the ", content, " to a file first"));
  };
  check(args.checkpoint_path, "--init", "checkpoint");
  for (const std::string& path : args.config_paths) check(path, "--config", "configuration");
}

}  // namespace

void run_seeds(const Arguments& args, Tool& tool) {
  if (args.out_folder.empty())
    refuse_usage("--out", "the folder of the runs", "none", "mh-finetune --help shows all options");
  if (const int size = start_process().size; size > 1)
    refuse_usage("--seeds", "one process", str("a job of ", size, " processes"),
                 "start a job for each seed, with --seed");
  if (args.num_seeds > 1) check_files(args);
  const train::SeedRuns runs{args.out_folder, args.seed >= 0 ? args.seed : 1, args.num_seeds, args.resume};
  const train::SeedFolder folder_of_runs(runs);
  train::check_seed_folders(runs);
  if (const auto seed = runs.first_new_seed(); seed && args.checkpoint_path.empty())
    refuse_usage("--resume --seeds", str("--init, since the run with seed ", *seed, " has not begun"), "none",
                 "repeat the command that started the runs, with --resume");
  const auto make_run_trainer = [&](int64_t seed, const std::string& folder) {
    Arguments run_arguments = args;
    run_arguments.seed = seed;
    run_arguments.out_folder = folder;
    run_arguments.resume = runs.resumes(seed);
    if (run_arguments.resume) run_arguments.checkpoint_path = "";  // the weights are in the folder
    return make_trainer(run_arguments);
  };
  // A closed pipe must not end the runs, which also write their folders.
  Table table(Table::format_named(args.format), true);
  std::vector<train::SeedResult> results;
  const int status = train::run_seeds(runs, make_run_trainer, [&](const train::SeedResult& result) {
    results.push_back(result);
    table.print_row(row_of(str(result.seed), result.update, result.scores));
  });
  if (status != 0) return tool.set_status(status);
  if (results.empty()) return;
  table.print_row(row_of("mean", NAN, train::mean_of(results)));
  table.print_row(row_of("deviation", NAN, train::standard_deviation_of(results)));
}

}  // namespace mh::train_setup
