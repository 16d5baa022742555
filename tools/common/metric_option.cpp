// Declares and checks --metric with its options, and computes the metric.
#include "common/metric_option.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"
#include "common/option_columns.h"
#include "common/shard_source.h"

namespace mh {

void check_bleu_options(const CommandLineFields& fields, const metrics::BleuOptions& options) {
  options.check();
  if (!options.uses_smoothing_value())
    refuse_options({fields.option("smooth_value")}, "--smooth floor or add-k with this option",
                   "a method of smoothing without a value", "pass --smooth floor or add-k");
}

void MetricOption::describe(Fields& f) { decoding_.describe(f); }

void MetricOption::add_to(CLI::App& app) {
  std::vector<std::string> names{"perplexity"}, example_scores;
  for (const task::ScoreSpec& score : task::all_scores()) {
    names.push_back(score.name);
    if (!score.needs_decoding) example_scores.push_back(score.name);
  }
  option_ = app.add_option("--metric", name_,
                           str("evaluation metric: perplexity; ", join_alternatives(task::decoded_score_names()),
                               " for a shard of pairs; for a shard of examples, a score of the task: ",
                               join(example_scores, ", "), " [perplexity]"));
  option_->type_name("WHAT")->check(one_of(names));
  fields_ = std::make_unique<CommandLineFields>(app);
  fields_->declare(*this);
}

void MetricOption::store_values() {
  fields_->store_values(*this);
  check_bleu_options(*fields_, decoding_.bleu);
  if (score_spec().needs_decoding) return;
  const std::string decoded_scores = join_alternatives(task::decoded_score_names());
  refuse_options(fields_->options(), str("--metric ", decoded_scores, " with this option"),
                 found_value("--metric " + name_, str("--metric ", kPerplexity)),
                 str("pass --metric ", decoded_scores, " with a shard of pairs"));
}

task::EvaluationOptions MetricOption::evaluation_options() const {
  task::EvaluationOptions options;
  options.decoding = decoding_;
  return options;
}

void MetricOption::check(model::LoadedModel& model, const task::Dataset& dataset, const std::string& shard,
                         const data::ScoringOptions& scoring_options) const {
  const auto scores = dataset.score_names();
  const bool has_task_scores = !task::task_of(model.config.model)->traits().has_perplexity;
  if (is_perplexity()) {
    if (option_->count() > 0 && has_task_scores)
      refuse_usage("--metric perplexity", "a shard of text or of pairs to translate",
                   str(shard, ", which is scored with ", join(scores, ", ")),
                   str("use --metric ", join(scores, " or "), ", or leave --metric out to compare the loss"));
    return;
  }
  const bool needs_decoding = score_spec().needs_decoding;
  if (std::find(scores.begin(), scores.end(), name_) == scores.end())
    refuse_usage("--metric " + name_,
                 needs_decoding ? "a shard of pairs to translate" : "a shard that is scored with " + name_,
                 str(shard, ", which is scored with ", has_task_scores ? join(scores, ", ") : "perplexity"),
                 has_task_scores ? "use --metric " + join(scores, " or ") : "use --metric perplexity");
  if (scoring_options.sample.blocks > 0)
    refuse_usage("--blocks",
                 str("0, since ", title(), needs_decoding ? " is computed on all pairs" : " is computed on all rows"),
                 str(scoring_options.sample.is_default_sample ? "the default, " : "", scoring_options.sample.blocks),
                 "pass --blocks 0");
  dataset.check_score(*model.model, name_, evaluation_options());
}

double MetricOption::compute(model::LoadedModel& model, const task::Dataset& dataset,
                             const std::function<void(int64_t, int64_t)>& progress, attention::Observer* observer,
                             const distributed::Group* group) const {
  task::EvaluationOptions evaluation = evaluation_options();
  evaluation.model_name = model.name;
  evaluation.observer = observer;
  evaluation.group = group;
  evaluation.on_progress = progress;
  return dataset.score(*model.model, name_, evaluation);
}

nlohmann::ordered_json MetricOption::protocol() const {
  if (!score_spec().needs_decoding) return nlohmann::ordered_json::object();
  nlohmann::ordered_json columns = {{"signature", decoding_.signature()}};
  columns.update(option_columns(decoding_.translation.search));
  return columns;
}

}  // namespace mh
