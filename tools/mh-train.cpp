// Trains a model from a configuration, or resumes a run exactly.
//
//   mh-train --config wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1 --set train.length=300u
//   mh-train --resume --out run1
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/tool.h"
#include "model/device.h"
#include "train/trainer.h"

using namespace mh;

namespace {

struct Arguments {
  std::vector<std::string> configs, sets;
  std::string train, valid, out, list, format = "table", device = "auto", precision, attention;
  bool resume = false, dry_run = false;
  int threads = 0;
  int64_t seed = -1;
};

Config configuration(const Arguments& a) {
  Config config;
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
  return config;
}

template <class S>
std::string stages_of(const char* stage, const Registry<S>& registry) {
  std::string rows;
  for (const std::string& name : registry.names())
    rows += str(stage, '\t', name, '\t', registry.find(name, stage).help, '\n');
  return rows;
}

void print(const std::string& text) {
  auto sink = open_sink("-");
  sink->write(text);
  sink->close();
}

std::string listed(const std::string& what) {
  std::string text;
  if (what == "stages")
    return "stage\tname\tdoes\n" + stages_of("pairing", attention::pairings()) +
           stages_of("score", attention::scores()) + stages_of("normaliser", attention::normalisers()) +
           stages_of("mixer", attention::mixers()) + stages_of("combiner", attention::combiners());
  if (what == "backbones") {
    text = "backbone\tdoes\n";
    for (const std::string& name : model::backbones().names())
      text += str(name, '\t', model::backbones().find(name, "").help, '\n');
    return text;
  }
  text = "key\ttype\tdefault\tmeaning\n";
  for (const auto& row : train::all_keys()) {
    std::string choices = row.choices.empty() ? "" : " (" + join(row.choices, ", ") + ")";
    text += str(row.key, '\t', row.type, '\t', row.value, '\t', row.help, choices, '\n');
  }
  return text;
}

// What a configuration would build. Needs data only where the configuration does not say how large the vocabulary is.
void dry_run(const Arguments& a) {
  Config config = configuration(a);
  train::RunConfig run = train::RunConfig::read(config);
  const auto& t = run.train;
  t.check();
  int64_t vocabulary = run.model.model.vocabulary_rows, tokens = 0;
  if (!run.data.train.empty()) {
    io::ShardFile shard(run.data.train);
    vocabulary = shard.header().vocabulary;
    tokens = static_cast<int64_t>(shard.counts().tokens);
  }
  if (vocabulary == 0)
    throw Error(Exit::usage,
                Problem{"--dry-run", "model.vocabulary_rows, or --train for its vocabulary", "neither", ""});
  auto model = model::build_language_model(run.model, vocabulary, at::Device(at::kMeta));
  const int64_t parameters = model->parameters().count(), rows = t.batch_tokens / t.block;
  const int64_t held = std::min(rows, t.micro_tokens > 0 ? t.micro_tokens / t.block : rows) * t.block;
  // Weights, gradients and two moments, then what the layers keep for their gradients.
  const int64_t bytes =
      16 * parameters + 4 * held * run.model.model.layers * (10 * run.model.model.width + 2 * run.model.model.ffn);
  nlohmann::ordered_json j{{"parameters", parameters},
                           {"vocabulary", vocabulary},
                           {"tokens_per_update", rows * t.block},
                           {"length", to_string(t.length)},
                           {"memory_estimate", bytes}};
  if (int64_t updates = train::updates_in(t.length, t, tokens); updates > 0) j["updates"] = updates;
  if (a.format == "json") return print(j.dump() + "\n");
  std::string table;
  for (auto& [key, value] : j.items())
    table += str(key, '\t', value.is_string() ? value.get<std::string>() : value.dump(), '\n');
  print(table);
}

}  // namespace

int main(int argc, char** argv) {
  Tool tool({"mh-train", "Trains a model from a configuration, or resumes a run exactly where it was.",
             "  mh-train --config configs/recipes/wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1\n"
             "  mh-train --resume --out run1 --set train.length=400u"});
  Arguments a;
  CLI::App& app = tool.app();
  app.add_option("-c,--config", a.configs, "configuration; later files win")->type_name("FILE");
  app.add_option("--set", a.sets, "change a key: train.lr=3e-4")->type_name("KEY=VALUE")->allow_extra_args(false);
  app.add_option("--train", a.train, "shard to train on")->type_name("FILE");
  app.add_option("--valid", a.valid, "shard to validate on")->type_name("FILE");
  app.add_option("-o,--out", a.out, "folder of the run")->type_name("FOLDER");
  app.add_flag("--resume", a.resume, "go on with the run in --out");
  CLI::Option* dry = app.add_flag("--dry-run", a.dry_run, "say what would be built, and end");
  app.add_option("--list", a.list, "list stages, keys or backbones, and end")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"stages", "keys", "backbones"}));
  app.add_option("--format", a.format, "of --dry-run: table or json [table]")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--device", a.device, "auto, cpu or cuda [auto]")
      ->type_name("WHERE")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->excludes(dry);
  app.add_option("--precision", a.precision, "fp32 or bf16; sets train.precision")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--attention", a.attention, "auto, composed or fused; sets train.attention_path")
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "composed", "fused"}));
  app.add_option("--threads", a.threads, "0: all cores [0]")->type_name("N")->check(CLI::Range(0, 1024));
  app.add_option("--seed", a.seed, "sets train.seed")->type_name("N")->check(CLI::NonNegativeNumber);
  return tool.run(argc, argv, [&] {
    if (!a.list.empty()) return quietly([&] { print(listed(a.list)); });
    if (a.out.empty() && (a.resume || !a.dry_run))
      throw Error(Exit::usage, Problem{"--out", "the folder of the run", "none", "mh-train --help shows all options"});
    if (a.resume && !MappedFile::possible(a.out + "/config.toml")) train::RunFolder missing(a.out, true);
    if (a.dry_run) return quietly([&] { dry_run(a); });
    const at::Device device = model::choose_device(a.device);
    model::prepare_cpu(a.threads);
    Config config = configuration(a);
    train::Trainer trainer(train::RunConfig::read(config), a.out, a.resume, device);
    tool.set_status(trainer.run());
  });
}
