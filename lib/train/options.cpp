#include "train/options.h"

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"
#include "task/task.h"

namespace mh::train {

namespace {

std::string toml_text(DecodeOptions options) {
  TomlWriter writer;
  writer.section(kDecodeSection, options);
  return writer.text();
}

}  // namespace

std::vector<std::string> validation_metrics() {
  std::vector<std::string> names = task::names_of(task::all_scores());
  names.insert(names.begin(), "loss");
  return names;
}

void OptimizerOptions::check() const {
  if (betas.size() != 2)
    refuse_usage("train.optimizer.betas", "two numbers", count_of(betas.size(), "number"), "for example [0.9, 0.98]");
  for (double beta : betas)
    if (beta >= 1) refuse_usage("train.optimizer.betas", "numbers below 1", str(beta), "for example [0.9, 0.98]");
}

void CheckpointOptions::check() const {
  if (retain_by == "best" && retain == 0)
    refuse_usage("train.checkpoint.retain_by", "newest, or train.checkpoint.retain above 0", retain_by,
                 "set train.checkpoint.retain to the number of models to retain, for example 5");
}

void ValidationOptions::check() const {
  if (min_improvement > 0 && patience == 0)
    refuse_usage("train.validation.min_improvement", "0, or train.validation.patience above 0", str(min_improvement),
                 "set train.validation.patience, or leave train.validation.min_improvement out");
  decode.check(kDecodeSection);
  if (const auto changed_keys = config_difference_texts(toml_text({}), toml_text(decode), {str(kDecodeSection, ".")});
      !changed_keys.empty() && !task::score_spec(metric).needs_decoding) {
    const std::string decoded_scores = join_alternatives(task::decoded_score_names());
    refuse_usage(kDecodeSection, "no keys in this section unless train.validation.metric=" + decoded_scores,
                 "changes from the defaults, " + join(changed_keys, "; "),
                 str("set train.validation.metric=", decoded_scores, ", or restore these defaults"));
  }
}

void ScheduleOptions::check() const {
  if (warmup_ratio > 0 && warmup.count > 0)
    refuse_usage("train.schedule.warmup_ratio", "either train.schedule.warmup_ratio or train.schedule.warmup",
                 str("train.schedule.warmup_ratio=", warmup_ratio, " and train.schedule.warmup=", to_string(warmup)),
                 "leave train.schedule.warmup_ratio or train.schedule.warmup out");
  if (decay_from == "start") {
    if (rule != "linear" && rule != "cosine")
      refuse_usage("train.schedule.decay_from", "warmup, or train.schedule.rule=linear or cosine",
                   str("start with train.schedule.rule=", rule),
                   "leave train.schedule.decay_from out, or set another train.schedule.rule");
    if (period.count > 0)
      refuse_usage("train.schedule.decay_from",
                   "warmup with train.schedule.period, whose cycles begin after the warm-up",
                   str("start and train.schedule.period=", to_string(period)),
                   "leave train.schedule.decay_from or train.schedule.period out");
  }
  if (restart_warmup.count > 0 && restart.count == 0)
    refuse_usage("train.schedule.restart_warmup", "0u, or train.schedule.restart above 0u", to_string(restart_warmup),
                 "set train.schedule.restart, or leave train.schedule.restart_warmup out");
  if (rule == "constant" && restart.count > 0 && restart_warmup.count == 0)
    refuse_usage(
        "train.schedule.restart", "0u, or train.schedule.restart_warmup above 0u, with train.schedule.rule=constant",
        to_string(restart),
        "set train.schedule.restart_warmup or another train.schedule.rule, or leave train.schedule.restart out");
  if (rule == "cyclic-cosine" && period.count == 0)
    refuse_usage("train.schedule.period",
                 "the length of half a cycle, above 0u, with train.schedule.rule=cyclic-cosine", "the default, 0u",
                 "for example 16000u");
}

void TrainOptions::check() const {
  batch.check();
  optimizer.check();
  checkpoint.check();
  validation.check();
  schedule.check();
}

}  // namespace mh::train
