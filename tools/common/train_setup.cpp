// The command-line options of training, and the configuration that follows from them.
#include "common/train_setup.h"

#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "common/processes.h"
#include "model/partial_load.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "train/config_sources.h"
#include "train/dry_run.h"
#include "train/trainer.h"

namespace mh::train_setup {

void add_options(CLI::App& app, Arguments& args, const std::string& checkpoint_option,
                 const std::string& checkpoint_help) {
  args.checkpoint_option = checkpoint_option;
  app.add_option("-c,--config", args.config_paths, "configuration file; later files override earlier ones")
      ->type_name("FILE");
  app.add_option("--set", args.assignments,
                 "value of a configuration key, such as train.lr=3e-4; overrides configuration files")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--train", args.train_paths, "training shard, or several shards to mix by data.weights")
      ->type_name("FILE");
  app.add_option("--valid", args.valid_path, "validation shard")->type_name("FILE");
  args.out_option = app.add_option("-o,--out", args.out_folder, "output folder of the run")->type_name("FOLDER");
  auto* resume = app.add_flag("--resume", args.resume, "resume the run in --out");
  auto* checkpoint = app.add_option(checkpoint_option, args.checkpoint_path, checkpoint_help + "; - is standard input")
                         ->type_name("FILE");
  // With --resume --seeds, mh-finetune begins from the checkpoint the runs that have not begun.
  if (!args.inherits_training) checkpoint->excludes(resume);
  CLI::Option* dry_run_option = app.add_flag(
      "--dry-run", args.dry_run, "print the parameter count, memory use and length of the run without training");
  app.add_option("--processes", args.num_processes,
                 "number of processes of the run that --dry-run describes; in training, the launcher, such as "
                 "torchrun, sets this number [1]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 20))
      ->needs(dry_run_option);
  args.format_option =
      add_format_option(app, args.format, args.inherits_training ? "of --dry-run and --seeds" : "of --dry-run");
  const ModelOptionSet model_options = add_model_options(app, args, "train.");
  model_options.device->excludes(dry_run_option);
  args.threads_option = model_options.threads;
  app.add_option("--seed", args.seed, "random seed; sets train.seed")->type_name("N")->check(whole_number(0));
}

std::unique_ptr<io::Checkpoint> initial_checkpoint(const Arguments& args) {
  return args.checkpoint_path.empty() ? nullptr : std::make_unique<io::Checkpoint>(args.checkpoint_path);
}

namespace {

// Returns the assignments of --seed, --train-only and --set, in this order. Throws Error(usage) if both --seed and
// --set set the seed.
std::vector<std::string> assignments_of(const Arguments& args) {
  std::vector<std::string> assignments;
  if (args.seed >= 0) {
    for (const std::string& assignment : args.assignments)
      if (assignment.rfind("train.seed=", 0) == 0)
        refuse_usage(
            "--set",
            str("no train.seed together with ", args.num_seeds > 0 ? "--seeds" : "--seed", ", which sets the seed"),
            assignment,
            args.num_seeds > 0 ? "leave train.seed out; --seed N sets the seed of the first run"
                               : "leave train.seed or --seed out");
    assignments.push_back(str("train.seed=", args.seed));
  }
  if (!args.trainable_names.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : args.trainable_names) names.push_back(quoted_toml(name));
    assignments.push_back(str("train.trainable=[", join(names, ", "), "]"));
  }
  assignments.insert(assignments.end(), args.assignments.begin(), args.assignments.end());
  return assignments;
}

}  // namespace

Config run_configuration(const Arguments& args, const io::Checkpoint* checkpoint) {
  train::ConfigSources sources;
  sources.checkpoint = checkpoint;
  sources.checkpoint_name = args.checkpoint_option + " " + args.checkpoint_path;
  sources.is_finetuning = args.inherits_training;
  if (!args.train_paths.empty()) sources.first_train_path = args.train_paths[0];
  if (args.resume) sources.resumed_config_path = args.out_folder + "/config.toml";
  sources.config_paths = args.config_paths;
  const auto add_option_value = [&](const char* key, const std::string& value, const char* option) {
    if (!value.empty()) sources.options.push_back({key, {value}, option});
  };
  if (args.train_paths.size() == 1) add_option_value("data.train", args.train_paths[0], "--train");
  if (args.train_paths.size() > 1) sources.options.push_back({"data.train", args.train_paths, "--train"});
  add_option_value("data.valid", args.valid_path, "--valid");
  add_option_value("train.precision", args.precision, "--precision");
  add_option_value("train.attention_path", args.attention_path, "--attention");
  sources.assignments = assignments_of(args);
  return train::combine_config(sources);
}

namespace {

// Throws Error(usage) for an option without effect on the run, or on the dry run, that the arguments describe.
void refuse_unused_options(const Arguments& args) {
  if (args.dry_run) {
    if (!args.resume)
      refuse_options({args.out_option}, "--resume with this option, since a dry run writes no folder",
                     "--dry-run without --resume");
    if (args.seeds_option != nullptr)
      refuse_options({args.seeds_option}, "no --dry-run, which describes a single run", "--dry-run");
    refuse_options({args.threads_option}, "no --dry-run, which computes nothing", "--dry-run");
  } else if (args.num_seeds == 0) {
    refuse_options(
        {args.format_option},
        args.inherits_training ? "--dry-run or --seeds, which print tables" : "--dry-run, which prints a table",
        args.inherits_training ? "neither" : "no --dry-run");
  }
}

}  // namespace

void run(const Arguments& args, Tool& tool) {
  start_process();
  refuse_unused_options(args);
  if (args.out_folder.empty() && (args.resume || !args.dry_run))
    refuse_usage("--out", "the folder of the run", "none", "add --out FOLDER");
  if (args.resume && !MappedFile::is_mappable(args.out_folder + "/config.toml"))
    train::RunFolder run_folder(args.out_folder, true, start_process().rank == 0);
  if (args.dry_run) return ignore_broken_pipe([&] { dry_run(args); });
  tool.set_status(make_trainer(args)->run());
}

std::unique_ptr<train::Trainer> make_trainer(const Arguments& args) {
  const at::Device device = device_in_job(args.device);
  nn::prepare_cpu(args.threads);
  if (args.checkpoint_path == "-" && start_process().size > 1)
    refuse_usage(args.checkpoint_option,
                 "a file in a job of several processes, since each process reads the checkpoint", input_name("-"),
                 "write the checkpoint to a file first");
  for (const std::string& path : args.config_paths)
    if (path == "-" && start_process().size > 1)
      refuse_usage("--config", "a file in a job of several processes, since each process reads the configuration",
                   input_name("-"), "write the configuration to a file first");
  const auto checkpoint = initial_checkpoint(args);
  Config config = run_configuration(args, checkpoint.get());
  train::RunConfig run_config = train::RunConfig::read(config);
  const distributed::Group& group =
      join_processes(std::chrono::seconds(run_config.train.timeout), args.threads, {device, true});
  return std::make_unique<train::Trainer>(std::move(run_config), args.out_folder, args.resume, device,
                                          train::WarmStart{checkpoint.get(), args.inherits_training}, group);
}

void dry_run(const Arguments& args) {
  const auto checkpoint = initial_checkpoint(args);
  Config config = run_configuration(args, checkpoint.get());
  const train::DryRunReport report =
      train::dry_run(train::RunConfig::read(config), checkpoint.get(), "--dry-run", args.num_processes);
  nlohmann::ordered_json columns{
      {"parameters", report.num_parameters},  {"trained_parameters", report.num_trained_parameters},
      {"vocabulary", report.vocabulary_size}, {"tokens_per_update", report.tokens_per_update},
      {"length", to_string(report.length)},   {"memory_bytes", report.memory_bytes}};
  if (report.source_vocabulary_size > 0) columns["source_vocabulary"] = report.source_vocabulary_size;
  if (report.num_updates > 0) columns["updates"] = report.num_updates;
  if (report.num_warmup_updates > 0) columns["warmup_updates"] = report.num_warmup_updates;
  if (report.num_epochs) columns["epochs"] = *report.num_epochs;
  if (report.max_long_row_predictions) columns["long_predictions"] = *report.max_long_row_predictions;
  if (!report.expected_values.is_null()) columns.update(report.expected_values);
  if (report.num_processes > 1) {
    columns["processes"] = report.num_processes;
    if (report.rows_per_process > 0) columns["rows_per_process"] = report.rows_per_process;
    if (report.mean_rows_per_process) columns["approximate_rows_per_process"] = *report.mean_rows_per_process;
    columns["bytes_sent_per_update"] = report.bytes_sent_per_update;
  }
  if (args.format == "json") return print_text(columns.dump() + "\n");
  std::string table;
  for (auto& [key, value] : columns.items())
    table += str(key, '\t', value.is_string() ? value.get<std::string>() : value.dump(), '\n');
  print_text(table);
}

void print_text(const std::string& text) {
  auto sink = open_sink("-");
  sink->write(text);
  sink->close();
}

}  // namespace mh::train_setup
