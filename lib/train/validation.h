// Validation: its scores, and the score by which models are compared (train.validation.metric).
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
  double loss = 0;           // nats per token; for examples, the mean loss
  task::NamedScores scores;  // scores of the task for examples; BLEU if train.validation.metric is bleu
};

class Validator {
 public:
  // All arguments must outlive this. `shard` may be null; then exists() is false and no other function may be called.
  // Throws Error(input) for a shard that is damaged or does not fit the model.
  Validator(const RunConfig& config, const io::ShardFile* shard, const text::Tokenizers& tokenizers);

  bool exists() const { return dataset_ != nullptr; }
  // Throws Error(usage) if the model does not support the rows of the shard, or the task lacks the score.
  void check(model::LanguageModel& model) const;
  // Ends early if a signal asks the process to stop. `observer` may be null.
  Validation run(model::LanguageModel& model, attention::Observer* observer) const;

  // Returns the value by which models are compared; lower is better.
  double selection_score(const Validation& validation) const;
  // Returns the improvement from `before` to `after`: in perplexity, in the loss of examples, or in the selected score.
  double improvement(double before, double after) const;

  // Returns the fields of log.jsonl: valid_nll and valid_perplexity, or valid_loss, and valid_NAME for each score.
  nlohmann::ordered_json line(const Validation& validation) const;
  std::string text(const Validation& validation) const;
  std::string summary(const Validation& validation) const;  // short text for a progress bar

 private:
  bool by_loss() const { return config_.train.validation.metric == "loss"; }
  bool by_perplexity() const { return config_.task().traits().perplexity; }

  const RunConfig& config_;
  std::unique_ptr<const task::Dataset> dataset_;
};

}  // namespace mh::train
