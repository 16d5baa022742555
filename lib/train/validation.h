// Validation: computes the loss and the scores of a model on the validation set, and the score that compares models
// (train.validation.metric).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/shard.h"
#include "task/task.h"
#include "text/tokenizers.h"
#include "train/run_config.h"

namespace mh::train {

struct Validation {
  double loss = 0;           // mean loss, as defined at task::Evaluation::loss
  task::NamedScores scores;  // for examples, all scores of the task; for pairs, BLEU if it is train.validation.metric
};

class Validator {
 public:
  // All arguments must outlive the validator. `shard`: null without a validation set; then has_dataset() is false and
  // no other function may be called. Throws the errors of task::Task::open(), and Error(input) for a shard without
  // labels or answers.
  Validator(const RunConfig& config, const io::ShardFile* shard, const text::Tokenizers& tokenizers);

  bool has_dataset() const { return dataset_ != nullptr; }
  // Throws Error(usage) if the model does not support the rows of the shard, or if train.validation.metric names a
  // score that cannot be computed on the shard.
  void check(model::LanguageModel& model) const;
  // Evaluates the model on the validation set. Returns early after a stop signal (base/signals.h). `observer` observes
  // the forward passes of the loss; may be null. The processes of `group`, all of which call this function, share the
  // batches; with an observer, each process computes all of them.
  Validation run(model::LanguageModel& model, attention::Observer* observer, const distributed::Group& group) const;

  // Returns the score that compares models, lower is better: the loss, or minus the score that train.validation.metric
  // names.
  double selection_score(const Validation& validation) const;
  // Returns the improvement from selection score `old_score` to `new_score`, positive if the model improved. If the
  // score is the loss of a language model, the improvement is a difference of perplexities, otherwise of the scores.
  double improvement(double old_score, double new_score) const;

  // Returns the fields for log.jsonl: valid_nll and valid_perplexity, or valid_loss; and valid_NAME for each score.
  nlohmann::ordered_json log_fields(const Validation& validation) const;
  // Returns loss and scores as text for log messages.
  std::string log_message(const Validation& validation) const;
  // Returns the perplexity, the loss or the score that train.validation.metric names, as short text for a progress bar.
  std::string summary(const Validation& validation) const;

 private:
  bool selects_by_loss() const { return config_.train.validation.metric == "loss"; }
  bool reports_perplexity() const { return config_.task().traits().has_perplexity; }

  const RunConfig& config_;
  std::unique_ptr<const task::Dataset> dataset_;
};

}  // namespace mh::train
