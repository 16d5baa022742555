// Trains a model from a configuration, or resumes a run exactly.
//
//   mh-train --config wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1 --set train.length=300u
//   mh-train --resume --out run1
//   mh-train --from swapped.safetensors --train train.mhs --out run2 --set train.length=100u
#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/tool.h"
#include "model/device.h"
#include "train.h"
#include "train/trainer.h"

using namespace mh;

namespace mh::tool_train {

std::unique_ptr<io::Checkpoint> beginning(const Arguments& a) {
  return a.from.empty() ? nullptr : std::make_unique<io::Checkpoint>(a.from);
}

Config configuration(const Arguments& a, const io::Checkpoint* from) {
  Config config;
  if (from != nullptr) config.load_text(model::config_of(*from).toml(), from->name() + ": configuration");
  if (a.resume) config.load_file(a.out + "/config.toml");
  for (const std::string& file : a.configs) config.load_file(file);
  auto assign = [&](const std::string& key, const std::string& value, const std::string& option) {
    if (!value.empty()) config.set_text(key, value, "--" + option);
  };
  assign("data.train", a.train, "train");
  assign("data.valid", a.valid, "valid");
  assign("train.precision", a.precision, "precision");
  assign("train.attention_path", a.attention, "attention");
  if (a.seed >= 0) config.set(str("train.seed=", a.seed));
  for (const std::string& assignment : a.sets) config.set(assignment);
  if (from != nullptr) {
    Config changed = config;
    model::require_same_parameters(model::config_of(*from), model::ModelConfig::read(changed),
                                   model::sizes_of(io::tokenizers_of(*from)), "--from " + a.from);
  }
  return config;
}

}  // namespace mh::tool_train

int main(int argc, char** argv) {
  Tool tool({"mh-train", "Trains a model from a configuration, or resumes a run exactly where it was.",
             "  mh-train --config configs/recipes/wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1\n"
             "  mh-train --resume --out run1 --set train.length=400u\n"
             "  mh-train --from swapped.safetensors --train train.mhs --out run2 --set train.length=100u"});
  tool_train::Arguments a;
  CLI::App& app = tool.app();
  app.add_option("-c,--config", a.configs, "configuration; later files win")->type_name("FILE");
  app.add_option("--set", a.sets, "change a key: train.lr=3e-4")->type_name("KEY=VALUE")->allow_extra_args(false);
  app.add_option("--train", a.train, "shard to train on")->type_name("FILE");
  app.add_option("--valid", a.valid, "shard to validate on")->type_name("FILE");
  app.add_option("-o,--out", a.out, "folder of the run")->type_name("FOLDER");
  auto* resume = app.add_flag("--resume", a.resume, "go on with the run in --out");
  app.add_option("--from", a.from, "begin a new run with a checkpoint's weights and model; - is standard input")
      ->type_name("FILE")
      ->excludes(resume);
  CLI::Option* dry = app.add_flag("--dry-run", a.dry_run, "say what would be built, and end");
  app.add_option("--list", a.list, "list stages, keys or backbones, and end")
      ->type_name("WHAT")
      ->check(one_of({"stages", "keys", "backbones"}));
  app.add_option("--format", a.format, "of --dry-run: table or json [table]")
      ->type_name("WHAT")
      ->check(one_of({"table", "json"}));
  add_model_options(app, a, "train.")->excludes(dry);
  app.add_option("--seed", a.seed, "sets train.seed")->type_name("N")->check(CLI::NonNegativeNumber);
  return tool.run(argc, argv, [&] {
    if (!a.list.empty()) return quietly([&] { tool_train::list(a.list); });
    if (a.out.empty() && (a.resume || !a.dry_run))
      throw Error(Exit::usage, Problem{"--out", "the folder of the run", "none", "mh-train --help shows all options"});
    if (a.resume && !MappedFile::possible(a.out + "/config.toml")) train::RunFolder missing(a.out, true);
    if (a.dry_run) return quietly([&] { tool_train::dry_run(a); });
    const at::Device device = model::choose_device(a.device);
    model::prepare_cpu(a.threads);
    const auto from = tool_train::beginning(a);
    Config config = tool_train::configuration(a, from.get());
    train::Trainer trainer(train::RunConfig::read(config), a.out, a.resume, device, from.get());
    tool.set_status(trainer.run());
  });
}
