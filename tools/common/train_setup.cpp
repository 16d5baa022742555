// The command-line options of training, and the configuration that follows from them.
#include "common/train_setup.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "model/partial_load.h"
#include "nn/device.h"
#include "train/dry_run.h"
#include "train/finetune.h"
#include "train/trainer.h"

namespace mh::train_setup {

void add_options(CLI::App& app, Arguments& args, const std::string& from_option, const std::string& from_help) {
  args.from_option = from_option;
  app.add_option("-c,--config", args.configs, "configuration file; later files override earlier ones")
      ->type_name("FILE");
  app.add_option("--set", args.assignments,
                 "value of a configuration key, such as train.lr=3e-4; overrides configuration files")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--train", args.train, "training shard")->type_name("FILE");
  app.add_option("--valid", args.valid, "validation shard")->type_name("FILE");
  app.add_option("-o,--out", args.out, "output folder of the run")->type_name("FOLDER");
  auto* resume = app.add_flag("--resume", args.resume, "resume the run in --out");
  app.add_option(from_option, args.from, from_help + "; - is standard input")->type_name("FILE")->excludes(resume);
  CLI::Option* dry_run_option = app.add_flag(
      "--dry-run", args.dry_run, "print the parameter count, memory use and length of the run without training");
  add_format(app, args.format, args.inherits_training ? "of --dry-run and --seeds" : "of --dry-run");
  add_model_options(app, args, "train.").device->excludes(dry_run_option);
  app.add_option("--seed", args.seed, "random seed; sets train.seed")->type_name("N")->check(whole_number(0));
}

std::unique_ptr<io::Checkpoint> initial_checkpoint(const Arguments& args) {
  return args.from.empty() ? nullptr : std::make_unique<io::Checkpoint>(args.from);
}

namespace {

// Adds to `config` the sections that a fine-tuning run inherits from the checkpoint. If args.train is set, also adds
// the keys of an output head that fits the labels of this shard, for models of tasks with
// task::TaskTraits::counts_rows.
void inherit_config(const Arguments& args, const io::Checkpoint& checkpoint, Config& config) {
  const std::string inherited_toml = train::inherited_sections(checkpoint);
  config.load_text(inherited_toml, checkpoint.name() + ": configuration");
  for (const std::string& line : split(inherited_toml, '\n'))
    if (line.rfind('[', 0) == 0) log_info(str("inherited from ", checkpoint.name(), ": ", line));
  if (args.train.empty() || !task::task_of(model::config_of(checkpoint).model)->traits().counts_rows) return;
  const io::ShardFile shard(args.train);
  const auto task = task::task_of_kind(shard.header().kind, args.train);
  for (const std::string& key : task->head_assignments(shard.header(), args.train)) config.set(key);
}

// Throws Error(usage) if a model with this configuration cannot load the parameters of the checkpoint.
void check_start(const Arguments& args, const io::Checkpoint& checkpoint, Config config) {
  const auto model = model::ModelConfig::read(config);
  const auto vocabulary_sizes = model::vocabulary_sizes_of(text::tokenizers_of(checkpoint));
  const std::string where = args.from_option + " " + args.from;
  if (!args.inherits_training)
    return model::require_same_parameters(model::config_of(checkpoint), model, vocabulary_sizes, where);
  const auto new_model = model::build_language_model(model, vocabulary_sizes, at::Device(at::kMeta));
  model::compare_with_checkpoint(checkpoint, new_model->parameters(), where);
  model::require_same_heads(
      *model::build_language_model(model::config_of(checkpoint), vocabulary_sizes, at::Device(at::kMeta)), *new_model,
      where);
}

}  // namespace

Config configuration(const Arguments& args, const io::Checkpoint* checkpoint) {
  Config config;
  if (checkpoint != nullptr)
    config.load_text(model::config_of(*checkpoint).toml(), checkpoint->name() + ": configuration");
  if (checkpoint != nullptr && args.inherits_training) inherit_config(args, *checkpoint, config);
  if (args.resume) {
    const std::string config_path = args.out + "/config.toml";
    config.load_text(read_text_file(config_path), config_path);
    train::set_legacy_defaults(config);
  }
  for (const std::string& file : args.configs) config.load_file(file);
  auto assign = [&](const std::string& key, const std::string& value, const std::string& option) {
    if (!value.empty()) config.set_text(key, value, "--" + option);
  };
  assign("data.train", args.train, "train");
  assign("data.valid", args.valid, "valid");
  assign("train.precision", args.precision, "precision");
  assign("train.attention_path", args.attention, "attention");
  if (args.seed >= 0) {
    for (const std::string& assignment : args.assignments)
      if (assignment.rfind("train.seed=", 0) == 0)
        throw Error(
            Exit::usage,
            Problem{"--set", str("no train.seed, since ", args.num_seeds > 0 ? "--seeds" : "--seed", " sets the seed"),
                    assignment,
                    args.num_seeds > 0 ? "leave train.seed out; --seed N sets the seed of the first run"
                                       : "leave train.seed or --seed out"});
    config.set(str("train.seed=", args.seed));
  }
  if (!args.train_only.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : args.train_only) names.push_back(quoted_toml(name));
    config.set(str("train.trainable=[", join(names, ", "), "]"));
  }
  for (const std::string& assignment : args.assignments) config.set(assignment);
  if (checkpoint != nullptr && args.inherits_training) {
    const auto keys = config.keys_below("train");
    if (std::find(keys.begin(), keys.end(), "length") == keys.end()) {
      config.set("train.length=1e");
      log_info("train.length is not set; using 1e, one epoch");
    }
  }
  if (checkpoint != nullptr) check_start(args, *checkpoint, config);
  return config;
}

void run(const Arguments& args, Tool& tool) {
  if (args.out.empty() && (args.resume || !args.dry_run))
    throw Error(Exit::usage,
                Problem{"--out", "the folder of the run", "none", log_name() + " --help shows all options"});
  if (args.resume && !MappedFile::is_mappable(args.out + "/config.toml")) train::RunFolder run_folder(args.out, true);
  if (args.dry_run) return ignore_broken_pipe([&] { dry_run(args); });
  tool.set_status(prepare(args)->run());
}

std::unique_ptr<train::Trainer> prepare(const Arguments& args) {
  const at::Device device = nn::choose_device(args.device);
  nn::prepare_cpu(args.threads);
  const auto checkpoint = initial_checkpoint(args);
  Config config = configuration(args, checkpoint.get());
  return std::make_unique<train::Trainer>(train::RunConfig::read(config), args.out, args.resume, device,
                                          train::WarmStart{checkpoint.get(), args.inherits_training});
}

void dry_run(const Arguments& args) {
  const auto checkpoint = initial_checkpoint(args);
  Config config = configuration(args, checkpoint.get());
  const train::DryRun estimate = train::dry_run(train::RunConfig::read(config), checkpoint.get(), "--dry-run");
  nlohmann::ordered_json columns{
      {"parameters", estimate.parameters},    {"trained_parameters", estimate.trained_parameters},
      {"vocabulary", estimate.vocabulary},    {"tokens_per_update", estimate.tokens_per_update},
      {"length", to_string(estimate.length)}, {"memory_bytes", estimate.memory_bytes}};
  if (estimate.source_vocabulary > 0) columns["source_vocabulary"] = estimate.source_vocabulary;
  if (estimate.updates > 0) columns["updates"] = estimate.updates;
  if (estimate.warmup_updates > 0) columns["warmup_updates"] = estimate.warmup_updates;
  if (estimate.epochs) columns["epochs"] = *estimate.epochs;
  if (estimate.long_predictions) columns["long_predictions"] = *estimate.long_predictions;
  if (args.format == "json") return print(columns.dump() + "\n");
  std::string table;
  for (auto& [key, value] : columns.items())
    table += str(key, '\t', value.is_string() ? value.get<std::string>() : value.dump(), '\n');
  print(table);
}

void print(const std::string& text) {
  auto sink = open_sink("-");
  sink->write(text);
  sink->close();
}

}  // namespace mh::train_setup
