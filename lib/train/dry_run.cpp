#include "train/dry_run.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "ceil_div.h"
#include "model/load.h"
#include "train/memory_estimate.h"
#include "train/pass_planner.h"
#include "train/process_checks.h"
#include "train/run_batches.h"
#include "train/run_data.h"
#include "train/run_properties.h"
#include "train/schedule.h"

namespace mh::train {

namespace {

// Returns the maximum number of tokens in an update, padding included. `batches` may be null (no data).
int64_t tokens_per_update(const RunConfig& run, const Batches* batches) {
  const auto& t = run.train;
  if (batches != nullptr) return batches->tokens_per_update();
  const BatchOptions& b = t.batch;
  if (b.rows > 0) return b.rows * b.sequence_length;
  const task::TaskTraits traits = run.task().traits();
  if (b.order == BatchOrder::sentences) return b.tokens;
  return traits.has_text_order || traits.counts_rows ? b.tokens / b.sequence_length * b.sequence_length : b.tokens;
}

// Sets report.num_updates, report.num_warmup_updates and report.num_epochs; unknown numbers are 0 or nullopt.
// `batches`: null without data.
void set_update_counts(DryRunReport& report, const RunConfig& run, const Batches* batches) {
  const auto& t = run.train;
  // Returns 0 for a length that is unknown without data.
  const auto to_updates = [&](const Length& length) { return length_to_updates(length, run, batches); };
  report.num_updates = to_updates(t.length);
  report.num_warmup_updates = schedule_lengths(t, report.num_updates, to_updates).warmup;
  if (batches == nullptr || report.num_updates <= 0) return;
  const auto hundredths =
      std::llround(100.0 * static_cast<double>(report.num_updates) / static_cast<double>(batches->updates_per_epoch()));
  report.num_epochs = static_cast<double>(hundredths) / 100;
}

// Sets report.rows_per_process and report.mean_rows_per_process. `batches`: null without data.
void set_rows_per_process(DryRunReport& report, const RunConfig& run, const TrainShards& shards,
                          const Batches* batches) {
  const BatchOptions& b = run.train.batch;
  const task::TaskTraits traits = run.task().traits();
  if (b.order == BatchOrder::sentences) return;  // the number of rows differs from update to update
  if (traits.has_text_order || traits.counts_rows) {
    const int64_t num_rows = b.rows > 0 ? b.rows : std::max<int64_t>(1, b.tokens / b.sequence_length);
    report.rows_per_process = ceil_div(num_rows, report.num_processes);
  } else if (batches != nullptr) {
    uint64_t num_pairs = 0;
    for (const auto& shard : shards) num_pairs += shard->counts().num_records;
    const int64_t num_shares = batches->updates_per_epoch() * report.num_processes;
    report.mean_rows_per_process =
        std::round(100.0 * static_cast<double>(num_pairs) / static_cast<double>(num_shares)) / 100;
  }
}

// Returns the number of bytes that each process sends in an update. A ring all-reduce of n bytes in N processes sends
// 2 (N - 1) / N n bytes, an all-gather (N - 1) / N n bytes.
int64_t bytes_sent_per_update(const TrainOptions& t, const PassPlanner& planner, int64_t num_processes) {
  const int64_t num_trained = planner.num_trained_parameters(), bytes_per_bf16 = 2, bytes_per_fp32 = 4;
  const int64_t gradient_bytes = bytes_per_fp32 * num_trained;
  int64_t gathered_bytes = 0;
  if (t.shard == "optimizer") {
    const int64_t num_bf16_parameters = t.precision == "bf16" ? planner.num_trained_divisible_parameters() : 0;
    gathered_bytes = bytes_per_bf16 * num_bf16_parameters + bytes_per_fp32 * (num_trained - num_bf16_parameters);
  }
  return (num_processes - 1) * (2 * gradient_bytes + gathered_bytes) / num_processes;
}

}  // namespace

DryRunReport dry_run(RunConfig run, const io::Checkpoint* checkpoint, const std::string& vocabulary_option,
                     int64_t num_processes) {
  const auto& t = run.train;
  run.check_without_data();
  model::VocabularySizes vocabulary_sizes{run.model.model.vocabulary_rows, run.model.model.encoder_decoder.source_rows};
  text::Tokenizers tokenizers;
  if (checkpoint != nullptr)
    vocabulary_sizes = model::vocabulary_sizes_of(tokenizers = text::tokenizers_of(*checkpoint));
  TrainShards shards;
  std::unique_ptr<Batches> batches;
  if (!run.data.train_paths.empty()) {
    text::Tokenizers shard_tokenizers;
    shards = open_train_shards(run.data, run.task().record_kind(), shard_tokenizers);
    if (checkpoint != nullptr)
      text::require_vocabularies(shards[0]->header(), run.data.train_paths[0], tokenizers, checkpoint->name());
    vocabulary_sizes = model::vocabulary_sizes_of(tokenizers = std::move(shard_tokenizers));
    batches = batches_of(run, shards, tokenizers);
    if (shards.size() > 1) log_info(describe_shards(run.data, batches->shard_shares()));
  }
  if (vocabulary_sizes.target == 0)
    refuse_usage(vocabulary_option, "model.vocabulary_rows or --train, which set the vocabulary size", "neither",
                 "set model.vocabulary_rows, or pass --train");
  auto model = model::build_language_model(run.model, vocabulary_sizes, at::Device(at::kMeta));
  model->set_path(attention::parse_attention_path(t.attention_path));
  // The checks from groups.check() to check_processes() require neither data nor the number of updates.
  run.groups.check(model->parameters(), t.optimizer.rule);
  run.regularisers.start(model->parameters(), run.model.attention);
  run.check_model(*model);
  check_processes(run, num_processes, at::kCPU);
  // Procedures receive the properties of the run only if the number of updates is known. The properties state that the
  // run has a validation set even without --valid, which a dry run does not require.
  if (batches != nullptr && t.length.count > 0)
    for (const auto& entry : run.procedures.entries())
      entry.plugin->set_run_properties(run_properties_of(run, *batches, true));
  for (const auto& entry : run.procedures.entries()) entry.plugin->start(*model);
  const PassPlanner planner(run, model->parameters(), batches.get());
  planner.check();
  DryRunReport report;
  for (const auto& entry : run.procedures.entries())
    if (const nlohmann::ordered_json values = entry.plugin->expected_values(); !values.is_null())
      report.expected_values.update(values);
  report.tokens_per_update = tokens_per_update(run, batches.get());
  report.num_parameters = model->parameters().num_trainable_elements();
  report.num_trained_parameters = planner.num_trained_parameters();
  report.vocabulary_size = vocabulary_sizes.target;
  report.source_vocabulary_size = vocabulary_sizes.source;
  report.length = t.length;
  report.memory_bytes = memory_estimate(run, *model, num_processes);
  report.num_processes = num_processes;
  set_rows_per_process(report, run, shards, batches.get());
  report.bytes_sent_per_update = bytes_sent_per_update(t, planner, num_processes);
  set_update_counts(report, run, batches.get());
  if (t.batch.long_sequence_length > 0) report.max_long_row_predictions = run.max_long_row_predictions();
  return report;
}

}  // namespace mh::train
