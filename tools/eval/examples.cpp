// mh-eval MODEL… DATA for a shard of examples, questions or documents: computes the scores of their task and writes
// predictions.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "score.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

// Opens a sink for `path`; returns null if `path` is empty.
std::unique_ptr<ByteSink> open_optional_sink(const std::string& path) {
  return path.empty() ? nullptr : open_sink(path);
}

void check_shard(const ScoreJob& job, const ShardSource& source, const task::Dataset& dataset) {
  const ExamplesJob& examples = job.examples;
  const auto refuse = [](const char* option, const std::string& expected, const std::string& found) {
    refuse_usage(option, expected, found, str("leave ", option, " out"));
  };
  const std::string shard = str(source.name(), ", a shard of ", source.task().prediction_noun());
  if (!job.per_token_path.empty()) refuse("--per-token", "a text or pairs, whose tokens are scored", shard);
  const std::vector<std::string> files = dataset.output_files();
  const auto has_file = [&](const char* name) { return std::ranges::find(files, name) != files.end(); };
  if (!examples.predictions_path.empty() && !has_file(task::kPredictions))
    refuse("--predictions", "a shard of classes, numbers or answers",
           str("a shard of ", source.task().prediction_noun()));
  if (!examples.best_answers_path.empty() && !has_file(task::kBestAnswers))
    refuse("--best-answers", "a shard of questions", shard);
}

}  // namespace

void ExamplesJob::check(const std::vector<std::string>& files) const {
  for (const auto& [option, path] :
       {std::pair("--predictions", predictions_path), {"--best-answers", best_answers_path}}) {
    if (path.empty()) continue;
    if (files.size() > 2) refuse_usage(option, "one model", str(files.size() - 1), "evaluate one model at a time");
    refuse_output_onto_input(path, files);
  }
  if (is_same_file(predictions_path, best_answers_path))
    refuse_usage("--best-answers", "a file other than the file of --predictions", best_answers_path,
                 "name another file");
}

ordered_json score_examples(const ScoreJob& job, const ShardSource& source, model::LoadedModel& model,
                            const task::Dataset& dataset) {
  const ExamplesJob& examples = job.examples;
  check_shard(job, source, dataset);
  task::EvaluationOptions evaluation;
  evaluation.scoring =
      resolved_scoring_options(model, job.scoring_options, dataset);  // throws for options that apply only to text
  evaluation.model_name = model.name;
  evaluation.on_progress = progress_bar("score", "rows");
  evaluation.group = job.group;
  // The sinks are opened before the long computation, so that errors appear early.
  const auto predictions = open_optional_sink(examples.predictions_path),
             best_answers = open_optional_sink(examples.best_answers_path);
  const task::Evaluation evaluation_result = dataset.evaluate(*model.model, evaluation);
  evaluation.on_progress = {};
  model.require_unchanged_file();
  const auto write = [&](ByteSink* sink, const char* name) {
    if (sink != nullptr) sink->write(evaluation_result.output_files.at(name)()), sink->close();
  };
  write(predictions.get(), task::kPredictions);
  write(best_answers.get(), task::kBestAnswers);
  if (!examples.prints_scores())
    for (const auto& [name, value] : evaluation_result.scores) log_info(str(name, " ", shortest_decimal(value)));
  ordered_json row{{"model", model.name},
                   {"task", dataset.name()},
                   {"rows", evaluation_result.num_rows},
                   {"scored", evaluation_result.num_scored},
                   {"loss", evaluation_result.num_scored > 0 ? evaluation_result.loss : NAN}};
  for (const auto& [name, value] : evaluation_result.scores) row[name] = value;
  row["longest"] = evaluation.scoring.sequence_length;
  row.update(dataset.columns());
  row.update({{"precision", job.args->precision}, {"set", join(job.args->assignments, " ")}});
  return row;
}

}  // namespace mh::eval
