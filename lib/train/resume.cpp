#include "train/resume.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Collects the configuration keys that a resume of `run` may change.
class ChangeableKeys : public Fields {
 public:
  explicit ChangeableKeys(RunConfig run) : has_validation_set_(!run.data.valid_checksum.empty()) {
    run.describe(*this);
  }
  bool has(const std::string& key) const {
    return std::any_of(keys_.begin(), keys_.end(), [&](const std::string& changeable_key) {
      return changeable_key.ends_with('.') ? key.rfind(changeable_key, 0) == 0 : key == changeable_key;
    });
  }

 protected:
  bool visit(const Field&, std::string&) override { return false; }
  void set_resume_rule(const std::string& key, ResumeRule rule) override {
    // In a run with a validation set, keys marked fixed_with_validation_set cannot change: the scores of validations
    // before and after the resume must be comparable.
    if (rule == ResumeRule::changeable || (rule == ResumeRule::fixed_with_validation_set && !has_validation_set_))
      keys_.push_back(key);
  }

 private:
  const bool has_validation_set_;
  std::vector<std::string> keys_;
};

}  // namespace

bool depends_on_length(const RunConfig& run) {
  const ScheduleOptions& schedule = run.train.schedule;
  return schedule.length.count == 0 &&
         (schedule.decays_to_end() || (schedule.warmup_ratio > 0 && schedule.restart.count == 0) ||
          run.regularisers.any_depends_on_fraction());
}

bool require_same_run(const RunConfig& run, const std::string& stored_toml, const std::string& file) {
  const RunConfig old_run = read_stored_config(
      file, str(file, " is damaged or was edited; restore the file, or start a new run with another --out"), [&] {
        Config old_config;
        old_config.load_text(stored_toml, file);
        set_legacy_defaults(old_config);
        return RunConfig::read(old_config);
      });
  // In old_text, a key that the file lacks has the value that set_legacy_defaults() sets or, failing that, its current
  // default.
  const std::string old_text = old_run.toml(), new_text = run.toml();
  const ChangeableKeys changeable_keys(old_run);
  std::vector<std::string> fixed_changes, allowed_changes;
  for (const ConfigDifference& difference : config_differences(old_text, new_text))
    (changeable_keys.has(difference.key) ? allowed_changes : fixed_changes).push_back(difference.text);
  if (!fixed_changes.empty())
    refuse_usage("--resume", str("the values stored in ", file, " for keys that a resume cannot change"),
                 "(stored -> new) " + join(fixed_changes, "; "),
                 "restore the stored values in the options, the shards or config.toml of the run, or start "
                 "a new run with another --out");
  for (const std::string& change : allowed_changes) log_info("changed by this resume: " + change);
  if (depends_on_length(run) && old_run.train.length != run.train.length)
    log_warning(
        "the end of the learning-rate schedule moves from " + to_string(old_run.train.length) + " to " +
        to_string(run.train.length) +
        ", but completed updates followed the old schedule; to keep the old schedule, set train.schedule.length=" +
        to_string(old_run.train.length));
  return !allowed_changes.empty();
}

void check_restored_state(TrainState& state, const TrainOptions& options, const ScheduleLengths& lengths, int64_t end) {
  if (state.update > end)
    refuse_usage("train.length", str("at least ", state.update, "u, the number of completed updates"),
                 to_string(options.length), "raise train.length");
  if (state.schedule_version != kScheduleVersion) {
    if (state.update > 0 && state.update < end &&
        (options.schedule.rule != "constant" || state.update < lengths.warmup))
      log_warning(str(
          "the run was started by an earlier version, in which update n used the learning rate at n completed updates; "
          "from update ",
          with_commas(state.update + 1),
          " on, update n uses the learning rate at n - 1 completed updates (LEARNING RATES in mh-config(5))"));
    state.schedule_version = kScheduleVersion;
  }
  if (state.update < end)
    log_info(str("training resumes at update ", with_commas(state.update), " of ", with_commas(end)));
  if (state.num_threads != at::get_num_threads())
    log_warning(str("the run continues with ", count_of(at::get_num_threads(), "thread"), " instead of ",
                    state.num_threads,
                    ": floating-point sums have another order, so the weights differ in the last digits"));
}

}  // namespace mh::train
