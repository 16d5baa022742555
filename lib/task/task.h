// The tasks that models are trained for and scored on, a file each: what a shard of the task's records is made into,
// what is scored, and which options it has.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "data/corpus.h"
#include "metrics/answers.h"
#include "metrics/bleu.h"
#include "model/model_config.h"
#include "task/token_score.h"
#include "task/translator.h"
#include "text/records/shard_records.h"

namespace mh {
class ByteSink;
class Config;
class Fields;
}  // namespace mh
namespace mh::data {
class Pairs;
}

namespace mh::task {

using NamedScores = std::vector<std::pair<std::string, double>>;         // in the order of the task
double score_named(const NamedScores& scores, const std::string& name);  // NaN where there is none of this name

// What a model finds of a dataset.
struct Evaluation {
  double loss = 0;                // mean, as in training: nats per token; of examples the loss of the model's head
  int64_t rows = 0;               // rows that were scored, all of them unless a signal stopped it
  int64_t scored = 0;             // known targets
  NamedScores scores;             // empty where nothing is known
  std::vector<double> predicted;  // of each row the class, or the number
  std::vector<metrics::Answers> answers;  // of each question
};

// Returns the mean loss per token, and how many tokens were scored.
Evaluation evaluation_of(const Score& score);

// How a dataset is scored.
struct EvaluationOptions {
  data::ScoringOptions scoring = {};                             // of a text, block must be set
  std::string metric = "loss";                                   // a score that evaluate() returns beside the loss
  TranslationOptions translation = {};                           // how translations are made
  metrics::BleuOptions bleu = {};                                // how they are compared
  attention::Observer* observer = nullptr;                       // of every forward pass
  std::function<void(int64_t done, int64_t all)> progress = {};  // in rows; may be empty
};

// Records of a task, ready to train on or to score.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const data::Corpus& corpus() const = 0;
  // Name of the task that the records are of, such as "mrpc", or of their kind.
  virtual std::string name() const = 0;
  // Throws Error(input) where no record has a label or an answer to measure a loss by.
  virtual void require_targets() const {}
  // Throws Error(usage) for records that the model cannot take.
  virtual void check(model::LanguageModel& /*model*/) const {}

  // Names of the scores that these records have, beside the loss.
  virtual std::vector<std::string> score_names() const { return {}; }
  // Returns the loss and the scores that cost no further pass, and the one of options.metric. Ends early where a signal
  // asks the process to stop (base/signals.h).
  virtual Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const = 0;
  // Returns one of score_names().
  virtual double score(model::LanguageModel& model, const std::string& name, const EvaluationOptions& options) const;
  // Throws Error(usage) for a score that the model cannot be given by these options.
  virtual void check_score(model::LanguageModel& /*model*/, const std::string& /*name*/,
                           const EvaluationOptions& /*options*/) const {}

  // Whether evaluate() returns predictions, or the best answers, to write.
  virtual bool writes_predictions() const { return false; }
  virtual bool writes_best_answers() const { return false; }
  // Write what evaluate() has returned, as servers and official scripts take it.
  virtual void write_predictions(ByteSink& sink, const Evaluation& evaluation) const;
  virtual void write_best_answers(ByteSink& sink, const Evaluation& evaluation) const;
  // Returns the task's options that change its scores, as columns of a table.
  virtual nlohmann::ordered_json columns() const;

  // The pairs to translate; null in other tasks.
  virtual const data::Pairs* pairs() const { return nullptr; }
};

// How a dataset is made of a shard.
struct DatasetOptions {
  model::BertOptions bert;
  int64_t block = 512;  // tokens in a row of examples at most
  uint64_t seed = 1;
  // To train on: examples without a label are refused, questions whose answer is not in the paragraph have no rows.
  // Otherwise masked words are those of seed 1, so that any two models are scored on the same.
  bool learn = false;
};

// What of training has a meaning in a task.
struct Traits {
  bool perplexity = false;   // the loss is in nats per token
  bool text_order = false;   // rows may follow the order of a text, with a memory, and have any length
  bool counts_rows = false;  // updates count rows: train.batch.rows, bucket_updates and long_block
  const char* rows = "rows";
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::unique_ptr<Task> clone() const = 0;
  // What the model predicts: "masked words".
  virtual const char* predicts() const = 0;
  virtual const char* record_kind() const = 0;  // of its shards (io/shard.h)
  // The subcommands of mh-prep that make them.
  virtual std::vector<std::string> preparations() const = 0;
  // Whether models of these options have the task.
  virtual bool serves(const model::ModelOptions& model) const = 0;
  virtual Traits traits() const = 0;
  // Names of all scores that records of the task can have.
  virtual std::vector<std::string> score_names() const { return {}; }

  // The section of its options in a configuration, "" for none, and its fields.
  virtual const char* section() const { return ""; }
  virtual void describe(Fields& /*f*/) {}
  // Whether the options may be set to score a model, rather than to train it.
  virtual bool options_steer_scores() const { return false; }
  // Throws Error(usage) for options that make no sense with train.batch.long_block.
  virtual void check(int64_t /*long_block*/) const {}
  // Adds options that a configuration stored by an earlier version lacks.
  virtual void complete_stored(Config& /*config*/, int64_t /*long_block*/) const {}
  // Maximum number of predicted tokens in a row of `long_block` tokens, where rows have `block` before; none where a
  // row has no such bound. for_long_rows() is the task with that bound.
  virtual std::optional<int64_t> long_predictions(int64_t /*block*/, int64_t /*long_block*/) const { return {}; }
  virtual std::unique_ptr<Task> for_long_rows(int64_t /*block*/, int64_t /*long_block*/) const { return clone(); }

  // Returns assignments of keys that make a model's head one for the shard `name`: "model.bert.head='classes'". Throws
  // Error(input) where the shard is not one of examples.
  virtual std::vector<std::string> head_keys(const io::ShardHeader& header, const std::string& name) const;
  // Fills in what the model's options leave to the training shard, such as the names of classes.
  virtual void complete(model::ModelOptions& /*model*/, const io::ShardHeader& /*header*/,
                        const std::string& /*name*/) const {}
  // Whether shards may come from a pipe, to be held in memory.
  virtual bool reads_pipes() const { return false; }
  // Returns the records as a dataset. What they are read from and each tokenizer must outlive it. Logs what was
  // truncated or left out. Throws Error(input) for a damaged shard, one of other classes than the model's, and one
  // without labels to learn from; Error(usage) for options that leave no room for rows, and for two segments where the
  // model knows one. A text is checked when it is read.
  virtual std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                        const DatasetOptions& options) const = 0;
};
Registry<Task>& tasks();

// Each with its default options. Throws std::logic_error for a model that no task serves, and Error(input) for a shard
// of a kind that no task has.
std::unique_ptr<Task> task_of(const model::ModelOptions& model);
std::unique_ptr<Task> task_of_kind(const std::string& kind, const std::string& shard);

// Names of all scores of all tasks.
const std::vector<std::string>& all_score_names();

// Throws Error(usage) where rows of `wanted` segments are more than the model tells apart.
void require_segments(int64_t wanted, const DatasetOptions& options, const std::string& shard);

}  // namespace mh::task
