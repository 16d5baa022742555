// What a validation finds, and by what of it models are compared (train.validation.metric).
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
  double loss = 0;           // nats per token; of examples the mean loss
  task::NamedScores scores;  // of examples those of their task; BLEU where train.validation.metric asks for it
};

class Validator {
 public:
  // All must outlive it. `shard` may be null: then there is none, and nothing but that may be asked. Error(input) for
  // a shard that is damaged or not for this model.
  Validator(const RunConfig& config, const io::ShardFile* shard, const text::Tokenizers& tokenizers);

  bool exists() const { return dataset_ != nullptr; }
  // Refuses what the model cannot take, and a score that there is none of. Error(usage).
  void check(model::LanguageModel& model) const;
  // Ends early where a signal asks the process to stop. `observer` may be null.
  Validation run(model::LanguageModel& model, attention::Observer* observer) const;

  // By what models are compared, the lower the better.
  double judged(const Validation& validation) const;
  // How much better the second of two of these is: in perplexity, in the loss of examples, or in the score asked for.
  double improvement(double before, double after) const;

  // For log.jsonl: valid_nll and valid_perplexity, or valid_loss, and a valid_NAME for each score.
  nlohmann::ordered_json line(const Validation& validation) const;
  std::string text(const Validation& validation) const;
  std::string brief(const Validation& validation) const;  // for a progress bar

 private:
  bool by_loss() const { return config_.train.validation.metric == "loss"; }
  bool by_perplexity() const { return config_.task().traits().perplexity; }

  const RunConfig& config_;
  std::unique_ptr<const task::Dataset> dataset_;
};

}  // namespace mh::train
