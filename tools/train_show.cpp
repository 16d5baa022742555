// mh-train --list and --dry-run: what there is to choose, and what a choice would build.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "train.h"
#include "train/memory_estimate.h"
#include "train/trainer.h"

namespace mh::tool_train {

namespace {

template <class S>
std::string stages_of(const char* stage, const Registry<S>& registry) {
  std::string rows;
  for (const std::string& name : registry.names()) {
    std::vector<std::string> options;
    if (auto given = registry.make(name, stage)->options()) {
      FieldLister lister;
      lister.section("", *given);
      for (const auto& row : lister.rows()) options.push_back(str(row.key, "=", row.value));
    }
    rows += str(stage, '\t', name, '\t', registry.find(name, stage).help, '\t',
                options.empty() ? "-" : join(options, " "), '\n');
  }
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
    return "stage\tname\tdoes\toptions\n" + stages_of("pairing", attention::pairings()) +
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

}  // namespace

void list(const std::string& what) { print(listed(what)); }

void dry_run(const Arguments& a) {
  const auto from = beginning(a);
  Config config = configuration(a, from.get());
  train::RunConfig run = train::RunConfig::read(config);
  const auto& t = run.train;
  run.check_together();
  const bool pairs = model::has_encoder(run.model.model);
  model::Vocabularies vocabulary(run.model.model.vocabulary_rows, run.model.model.source_rows);
  io::Tokenizers tokenizers;
  if (from != nullptr) vocabulary = model::sizes_of(tokenizers = io::tokenizers_of(*from));
  std::unique_ptr<io::ShardFile> shard;
  std::unique_ptr<train::Batches> batches;
  if (!run.data.train.empty()) {
    shard = std::make_unique<io::ShardFile>(run.data.train);
    io::require_kind(shard->header(), run.data.train, pairs ? io::kPairsKind : io::kTextKind);
    if (from != nullptr) io::require_vocabularies(shard->header(), run.data.train, tokenizers, from->name());
    vocabulary = model::sizes_of(tokenizers = io::tokenizers_of(shard->header(), run.data.train));
    train::require_tokens(static_cast<int64_t>(shard->counts().tokens), run.data.train);
    batches = train::make_batches(task::corpus_of(*shard, tokenizers), t);
  }
  if (vocabulary.target == 0)
    throw Error(Exit::usage,
                Problem{"--dry-run", "model.vocabulary_rows, or --train for its vocabulary", "neither", ""});
  auto model = model::build_language_model(run.model, vocabulary, at::Device(at::kMeta));
  model->set_path(attention::path_named(t.attention_path));
  // What a training would refuse, but for what it lacks.
  run.groups.check(model->parameters(), t.optimizer);
  run.regularisers.start(model->parameters(), run.model.attention);
  run.check_model(*model);
  // A run may be shown before it has a length; one without --valid is taken to get it.
  if (batches != nullptr && t.length.count > 0)
    for (const auto& entry : run.procedures.entries()) entry.plugin->plan(train::plan_of(run, *batches, true));
  for (const auto& entry : run.procedures.entries()) entry.plugin->start(*model);
  train::Turns(run, model->parameters(), batches.get()).check();
  nlohmann::ordered_json j{{"parameters", model->parameters().count()},
                           {"vocabulary", vocabulary.target},
                           {"tokens_per_update", pairs ? t.batch_tokens : t.batch_tokens / t.block * t.block},
                           {"length", to_string(t.length)},
                           {"memory_bytes", train::memory_estimate(run, *model)}};
  if (vocabulary.source > 0) j["source_vocabulary"] = vocabulary.source;
  const int64_t updates = batches != nullptr ? batches->updates(t.length) : train::updates_in(t.length, t, 0);
  if (updates > 0) j["updates"] = updates;
  if (a.format == "json") return print(j.dump() + "\n");
  std::string table;
  for (auto& [key, value] : j.items())
    table += str(key, '\t', value.is_string() ? value.get<std::string>() : value.dump(), '\n');
  print(table);
}

}  // namespace mh::tool_train
