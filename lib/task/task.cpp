#include "task/task.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/record_kind.h"

namespace mh::task {

double score_named(const NamedScores& scores, const std::string& name) {
  for (const auto& [score_name, value] : scores)
    if (score_name == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

Evaluation evaluation_of(const NllSum& score) {
  Evaluation result;
  result.loss = score.nll / static_cast<double>(std::max<int64_t>(1, score.num_tokens));
  result.num_scored = score.num_tokens;
  return result;
}

double Dataset::score(model::LanguageModel& model, const std::string& name, const EvaluationOptions& options) const {
  return score_named(evaluate(model, options).scores, name);
}

const data::Pairs& Dataset::require_pairs(const std::string& options, const std::string& shard) const {
  refuse_usage(options, "a shard of pairs to translate", str(shard, ", which holds no pairs"),
               str("leave ", options, " out"));
}

nlohmann::ordered_json Dataset::columns() const { return nlohmann::ordered_json::object(); }

Registry<Task>& tasks() {
  static Registry<Task> registry("task");
  return registry;
}

namespace {

std::unique_ptr<Task> find_task(const std::function<bool(const Task&)>& predicate) {
  for (const std::string& name : tasks().names())
    if (auto task = tasks().make(name, "task"); predicate(*task)) return task;
  return nullptr;
}

}  // namespace

std::vector<std::string> Task::head_assignments(const io::ShardHeader& header, const std::string& name) const {
  std::vector<std::string> kinds, commands;  // record kinds for task heads, and the commands that make their shards
  for (const std::string& kind : io::record_kind_names())
    if (find_task([&](const Task& t) { return t.record_kind() == kind && t.traits().counts_rows; }) != nullptr)
      kinds.push_back(kind), commands.push_back(io::prep_commands_for(kind));
  refuse_input(name, "a shard for a task head, of one of the kinds " + join(kinds, ", "), "the kind " + header.kind,
               "make the shard with " + join(commands, " or "));
}

void Task::check(const data::BatchOptions& batch, int64_t /*validation_sequence_length*/) const {
  const TaskTraits task_traits = traits();
  if (batch.rows > 0 && !task_traits.counts_rows)
    refuse_usage("train.batch.rows", "0, for a model of texts or sentence pairs", str(batch.rows),
                 "leave train.batch.rows out, and set the size of a batch by train.batch.tokens");
  if (batch.bucket_updates > 1 && !task_traits.counts_rows)
    refuse_usage("train.batch.bucket_updates", "1, for a model of texts or sentence pairs", str(batch.bucket_updates),
                 "leave train.batch.bucket_updates out");
  if (batch.long_sequence_length > 0 && !task_traits.counts_rows)
    refuse_usage("train.batch.long_sequence_length", "0, for a model of texts or sentence pairs",
                 str(batch.long_sequence_length), "leave train.batch.long_sequence_length out");
  if (batch.order != data::BatchOrder::blocks && !task_traits.has_text_order)
    refuse_usage("train.batch.order", str("blocks, since ", task_traits.row_noun, " are independent"),
                 str(name_of(batch.order), ", which only texts support"), "leave train.batch.order out");
}

std::unique_ptr<Task> task_of(const model::ModelOptions& model_options) {
  auto task = find_task([&](const Task& t) { return t.serves(model_options); });
  if (task == nullptr)
    throw std::logic_error(str("no task for model.backbone='", model_options.backbone, "', model.bert.head='",
                               model_options.bert.head, "'"));
  return task;
}

std::unique_ptr<Task> task_of_kind(const std::string& kind, const std::string& shard) {
  auto task = find_task([&](const Task& t) { return t.record_kind() == kind; });
  if (task == nullptr) io::refuse_unknown_kind(kind, shard);
  return task;
}

const std::vector<ScoreSpec>& all_scores() {
  static const std::vector<ScoreSpec> all = [] {
    std::vector<ScoreSpec> unique_scores;
    for (const std::string& kind : io::record_kind_names())
      if (const auto task = find_task([&](const Task& t) { return t.record_kind() == kind; }); task != nullptr)
        for (const ScoreSpec& score : task->scores())
          if (std::ranges::find(unique_scores, score.name, &ScoreSpec::name) == unique_scores.end())
            unique_scores.push_back(score);
    return unique_scores;
  }();
  return all;
}

ScoreSpec score_spec(const std::string& name) {
  const auto it = std::ranges::find(all_scores(), name, &ScoreSpec::name);
  return it == all_scores().end() ? ScoreSpec{name} : *it;
}

std::vector<std::string> names_of(const std::vector<ScoreSpec>& scores) {
  std::vector<std::string> names;
  names.reserve(scores.size());
  for (const ScoreSpec& score : scores) names.push_back(score.name);
  return names;
}

std::vector<std::string> decoded_score_names() {
  std::vector<ScoreSpec> scores = all_scores();
  std::erase_if(scores, [](const ScoreSpec& score) { return !score.needs_decoding; });
  return names_of(scores);
}

void require_segments(int64_t segments, const DatasetOptions& options, const std::string& shard) {
  if (segments > options.bert.segments)
    refuse_usage("model.bert.segments",
                 str("at least ", segments, ", since a row of ", shard, " has ", count_of(segments, "segment")),
                 found_value(options.bert.segments, model::BertOptions{}.segments),
                 str("use a model with model.bert.segments=", segments));
}

}  // namespace mh::task
