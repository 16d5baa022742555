#include "train/resume.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Prefixes of the keys that a resume may not change.
std::vector<std::string> fixed_keys(const RunConfig& old_run) {
  std::vector<std::string> fixed{"model.",
                                 "attention.",
                                 "data.vocabulary",
                                 "data.source_vocabulary",
                                 "data.train_tokens",
                                 "data.train_checksum",
                                 "train.seed",
                                 "train.batch_tokens",
                                 "train.groups.",
                                 "train.regularisers.",
                                 "train.procedures.",
                                 "train.precision",
                                 "train.optimizer",
                                 "train.batching",
                                 "train.block",
                                 "train.batch_rows",
                                 "train.alike",
                                 "train.long_block",
                                 "train.long_from",
                                 "mlm.",
                                 "squad.",
                                 "train.only"};
  // A validation set may be added later; the best of one is not the best of another.
  if (!old_run.data.valid_checksum.empty())
    for (const char* key : {"data.valid_checksum", "train.valid_block", "train.valid_memory", "train.validate_by"})
      fixed.emplace_back(key);
  if (old_run.train.validate_by == "bleu") fixed.emplace_back("train.decode.");
  return fixed;
}

// Whether rates or terms of the loss depend on where the run ends.
bool depends_on_length(const RunConfig& run) {
  const TrainOptions& t = run.train;
  const bool decays_to_end =
      t.schedule == "linear" || (t.schedule == "cosine" && t.period.count == 0) || run.regularisers.follow_share();
  return decays_to_end && t.horizon.count == 0;
}

}  // namespace

void require_same_run(const RunConfig& run, const std::string& stored_toml, const std::string& file) {
  Config old_config;
  old_config.load_text(stored_toml, file);
  complete_stored(old_config);
  const RunConfig old_run = RunConfig::read(old_config);
  // Resolved again: a key that is newer than the file has its default in both.
  const std::string was = old_run.toml(), is = run.toml();
  if (const auto wrong = changes(was, is, fixed_keys(old_run)); !wrong.empty())
    throw Error(Exit::usage, Problem{file, "the model, data and batches that the run was started with",
                                     join(wrong, "; "), "start a new run for another setting"});
  for (const std::string& change : changes(was, is, {"train.", "data."})) log_info("changed: " + change);
  if (depends_on_length(run) && old_run.train.length != run.train.length)
    log_warning("the schedule's horizon moves from " + to_string(old_run.train.length) + " to " +
                to_string(run.train.length) +
                ": not the run that this length would have given from the start; train.horizon keeps it");
}

void continue_state(TrainState& state, const TrainOptions& options, const ScheduleLengths& lengths, int64_t end) {
  if (state.update > end)
    throw Error(Exit::usage, Problem{"train.length", str("at least ", state.update, "u, where the run stands"),
                                     to_string(options.length), ""});
  if (state.schedule_rule != kScheduleRule) {
    if (state.update > 0 && state.update < end && (options.schedule != "constant" || state.update < lengths.warmup))
      log_warning(str(
          "the run began with an earlier version, whose update n took the learning rate at n completed updates; "
          "from update ",
          with_commas(state.update + 1), " on it takes the rate at n - 1, as LEARNING RATES in mh-train(1) has it"));
    state.schedule_rule = kScheduleRule;
  }
  if (state.update < end) log_info(str("resumes at update ", with_commas(state.update), " of ", with_commas(end)));
  if (state.threads != at::get_num_threads())
    log_warning(str("runs with ", at::get_num_threads(), " threads, after ", state.threads,
                    ": sums are rounded in another order, so that the weights differ in their last digits"));
}

}  // namespace mh::train
