// --dry-run: what a choice would build.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "common/train_setup.h"
#include "model/load.h"
#include "train/memory_estimate.h"
#include "train/plan.h"
#include "train/run_batches.h"
#include "train/run_data.h"
#include "train/schedule.h"
#include "train/turns.h"

namespace mh::train_setup {

void dry_run(const Arguments& a) {
  const auto from = beginning(a);
  Config config = configuration(a, from.get());
  train::RunConfig run = train::RunConfig::read(config);
  const auto& t = run.train;
  run.check_together();
  const model::Reads reads = model::reads_of(run.model.model);
  model::Vocabularies vocabulary(run.model.model.vocabulary_rows, run.model.model.source_rows);
  text::Tokenizers tokenizers;
  if (from != nullptr) vocabulary = model::sizes_of(tokenizers = text::tokenizers_of(*from));
  std::unique_ptr<io::ShardFile> shard;
  std::unique_ptr<train::Batches> batches;
  if (!run.data.train.empty()) {
    shard = std::make_unique<io::ShardFile>(run.data.train);
    io::require_kind(shard->header(), run.data.train, task::kind_for(run.model.model));
    if (from != nullptr) text::require_vocabularies(shard->header(), run.data.train, tokenizers, from->name());
    vocabulary = model::sizes_of(tokenizers = text::tokenizers_of(shard->header(), run.data.train));
    train::require_tokens(static_cast<int64_t>(shard->counts().tokens), run.data.train);
    batches = train::batches_of(run, *shard, tokenizers);
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
  const train::Turns turns(run, model->parameters(), batches.get());
  turns.check();
  const int64_t tokens_per_update = batches != nullptr             ? batches->tokens_per_update()
                                    : t.batch_rows > 0             ? t.batch_rows * t.block
                                    : reads == model::Reads::pairs ? t.batch_tokens
                                                                   : t.batch_tokens / t.block * t.block;
  nlohmann::ordered_json j{{"parameters", model->parameters().count()},
                           {"trained_parameters", turns.trained()},
                           {"vocabulary", vocabulary.target},
                           {"tokens_per_update", tokens_per_update},
                           {"length", to_string(t.length)},
                           {"memory_bytes", train::memory_estimate(run, *model)}};
  if (vocabulary.source > 0) j["source_vocabulary"] = vocabulary.source;
  // Lengths in updates; 0 where they are in epochs and no data tells how many updates an epoch has.
  const auto updates_of = [&](const Length& length) {
    return batches != nullptr ? batches->updates(length) : train::updates_in(length, t, 0);
  };
  const int64_t updates = updates_of(t.length);
  const int64_t warmup = train::schedule_lengths(t, updates, updates_of).warmup;
  if (updates > 0) j["updates"] = updates;
  if (warmup > 0) j["warmup_updates"] = warmup;
  if (batches != nullptr && updates > 0) {
    const auto hundredths =
        std::llround(100.0 * static_cast<double>(updates) / static_cast<double>(batches->updates_per_epoch()));
    j["epochs"] = static_cast<double>(hundredths) / 100;
  }
  if (t.long_block > 0 && run.model.model.head == model::HeadTask::words)
    j["long_predictions"] = run.long_predictions();
  if (a.format == "json") return print(j.dump() + "\n");
  std::string table;
  for (auto& [key, value] : j.items())
    table += str(key, '\t', value.is_string() ? value.get<std::string>() : value.dump(), '\n');
  print(table);
}

}  // namespace mh::train_setup
