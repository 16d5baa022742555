#include "train/validation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::train {

Validator::Validator(const RunConfig& config, const io::ShardFile* shard, const text::Tokenizers& tokenizers)
    : config_(config) {
  if (shard == nullptr) return;
  dataset_ = config.task().open(text::FileRecords(*shard), tokenizers, config.dataset_options(false));
  dataset_->require_targets();
}

void Validator::check(model::LanguageModel& model) const {
  dataset_->check(model);
  const std::vector<std::string> names = dataset_->score_names();
  const std::string& metric = config_.train.validation.metric;
  if (selects_by_loss() || std::find(names.begin(), names.end(), metric) != names.end()) return;
  refuse_usage("train.validation.metric", "loss, or a score of the task: " + join(names, ", "), metric,
               did_you_mean(metric, names, "set train.validation.metric=loss, or to one of these scores"));
}

Validation Validator::run(model::LanguageModel& model, attention::Observer* observer,
                          const distributed::Group& group) const {
  task::EvaluationOptions options;
  if (config_.task().traits().has_text_order) {
    options.scoring.sequence_length = config_.validation_sequence_length();
    options.scoring.memory = config_.validation_memory();
    if (config_.train.batch.order == BatchOrder::sentences) options.scoring.text_rows = data::TextRows::sentences;
    options.scoring.begin = data::Begin::none;  // as in training, whose rows start with the token before the row
  }
  options.metric = config_.train.validation.metric;
  options.decoding = config_.train.validation.decode;
  options.observer = observer;
  if (observer == nullptr) options.group = &group;
  const task::Evaluation evaluation = dataset_->evaluate(model, options);
  return {evaluation.loss, evaluation.scores};
}

double Validator::selection_score(const Validation& v) const {
  return selects_by_loss() ? v.loss : -task::score_named(v.scores, config_.train.validation.metric);
}

double Validator::improvement(double old_score, double new_score) const {
  return selects_by_loss() && reports_perplexity() ? std::exp(old_score) - std::exp(new_score) : old_score - new_score;
}

nlohmann::ordered_json Validator::log_fields(const Validation& v) const {
  nlohmann::ordered_json log_fields;
  if (reports_perplexity()) log_fields["valid_nll"] = v.loss, log_fields["valid_perplexity"] = std::exp(v.loss);
  else log_fields["valid_loss"] = v.loss;
  for (const auto& [name, value] : v.scores) log_fields["valid_" + name] = value;
  return log_fields;
}

std::string Validator::log_message(const Validation& v) const {
  std::string log_message = str("validation loss ", fixed_decimal(v.loss, 4));
  if (reports_perplexity()) log_message += str(" nats per token, perplexity ", fixed_decimal(std::exp(v.loss), 2));
  for (const auto& [name, value] : v.scores) {
    const task::ScoreSpec score = task::score_spec(name);
    log_message += str(", ", score.label, " ", fixed_decimal(value, score.digits));
  }
  return log_message;
}

std::string Validator::summary(const Validation& v) const {
  if (selects_by_loss()) return "valid " + fixed_decimal(reports_perplexity() ? std::exp(v.loss) : v.loss, 2);
  const task::ScoreSpec score = task::score_spec(config_.train.validation.metric);
  return str("valid ", score.label, " ", fixed_decimal(-selection_score(v), score.digits));
}

}  // namespace mh::train
