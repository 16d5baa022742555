// The tasks that models are trained for and scored on, one file each: rows made of the records of a shard, scores, and
// options.
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

using NamedScores = std::vector<std::pair<std::string, double>>;         // in the task's order
double score_named(const NamedScores& scores, const std::string& name);  // NaN if there is no such score

// The results of a model on a dataset.
struct Evaluation {
  double loss = 0;                // mean, as in training: nats per token; for examples, the loss of the model's head
  int64_t rows = 0;               // scored rows; all rows unless a signal stopped the evaluation
  int64_t scored = 0;             // targets with a known value
  NamedScores scores;             // empty without known targets
  std::vector<double> predicted;  // class or number of each row
  std::vector<metrics::Answers> answers;  // answers to each question
};

// Returns an evaluation with the mean loss per token and the number of scored tokens.
Evaluation evaluation_of(const Score& score);

// Options of an evaluation.
struct EvaluationOptions {
  data::ScoringOptions scoring = {};                             // for a text, block must be set
  std::string metric = "loss";                                   // a score that evaluate() returns beside the loss
  TranslationOptions translation = {};                           // options of decoding
  metrics::BleuOptions bleu = {};                                // options of BLEU
  attention::Observer* observer = nullptr;                       // observes every forward pass; may be null
  std::function<void(int64_t done, int64_t all)> progress = {};  // in rows; may be empty
};

// The records of a task as rows, for training or scoring.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const data::Corpus& corpus() const = 0;
  // Returns the name of the records' task, such as "mrpc", or of their kind.
  virtual std::string name() const = 0;
  // Throws Error(input) if no record has a label or an answer, without which there is no loss.
  virtual void require_targets() const {}
  // Throws Error(usage) for records that the model does not support.
  virtual void check(model::LanguageModel& /*model*/) const {}

  // Returns the names of these records' scores, besides the loss.
  virtual std::vector<std::string> score_names() const { return {}; }
  // Returns the loss, the scores that need no further pass, and the score options.metric. Ends early if a signal asks
  // the process to stop (base/signals.h).
  virtual Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const = 0;
  // Returns one of score_names().
  virtual double score(model::LanguageModel& model, const std::string& name, const EvaluationOptions& options) const;
  // Throws Error(usage) if the model and these options do not support the score.
  virtual void check_score(model::LanguageModel& /*model*/, const std::string& /*name*/,
                           const EvaluationOptions& /*options*/) const {}

  // Return whether evaluate() returns predictions, or the best answers, that can be written.
  virtual bool writes_predictions() const { return false; }
  virtual bool writes_best_answers() const { return false; }
  // Write the results of evaluate() in the formats of official scripts and evaluation servers.
  virtual void write_predictions(ByteSink& sink, const Evaluation& evaluation) const;
  virtual void write_best_answers(ByteSink& sink, const Evaluation& evaluation) const;
  // Returns the task's options that change its scores, as columns of a table.
  virtual nlohmann::ordered_json columns() const;

  // Returns the pairs to translate; null in other tasks.
  virtual const data::Pairs* pairs() const { return nullptr; }
};

// Options of opening a shard as a dataset.
struct DatasetOptions {
  model::BertOptions bert;
  int64_t block = 512;  // maximum number of tokens in a row of examples
  uint64_t seed = 1;
  // For training: examples without a label are an error, and questions without an answer in the paragraph have no rows.
  // Otherwise masks are those of seed 1, so that all models are scored on the same masked words.
  bool learn = false;
};

// The options of training that have a meaning in a task.
struct Traits {
  bool perplexity = false;   // the loss is in nats per token
  bool text_order = false;   // rows may follow the order of a text, with a memory, and may have any length
  bool counts_rows = false;  // updates count rows: train.batch.rows, bucket_updates and long_block
  const char* rows = "rows";
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::unique_ptr<Task> clone() const = 0;
  // Returns what the model predicts, for messages: "masked words".
  virtual const char* predicts() const = 0;
  virtual const char* record_kind() const = 0;  // kind of its shards (io/shard.h)
  // Returns the subcommands of mh-prep that make its shards.
  virtual std::vector<std::string> preparations() const = 0;
  // Returns whether models with these options have this task.
  virtual bool serves(const model::ModelOptions& model) const = 0;
  virtual Traits traits() const = 0;
  // Returns the names of all scores that records of the task can have.
  virtual std::vector<std::string> score_names() const { return {}; }

  // Returns the section of its options in a configuration; "" if it has none.
  virtual const char* section() const { return ""; }
  virtual void describe(Fields& /*f*/) {}
  // Returns whether the options may be set when a model is scored, not only when it is trained.
  virtual bool options_steer_scores() const { return false; }
  // Throws Error(usage) for options that contradict train.batch.long_block.
  virtual void check(int64_t /*long_block*/) const {}
  // Adds options that a configuration stored by an earlier version lacks.
  virtual void fill_stored(Config& /*config*/, int64_t /*long_block*/) const {}
  // Returns the maximum number of predicted tokens in a row of `long_block` tokens if other rows have `block` tokens;
  // none if a row has no such bound. for_long_rows() returns the task with that bound.
  virtual std::optional<int64_t> long_predictions(int64_t /*block*/, int64_t /*long_block*/) const { return {}; }
  virtual std::unique_ptr<Task> for_long_rows(int64_t /*block*/, int64_t /*long_block*/) const { return clone(); }

  // Returns assignments of keys that give a model a head for the shard `name`: "model.bert.head='classes'". Throws
  // Error(input) for a shard that does not hold examples.
  virtual std::vector<std::string> head_keys(const io::ShardHeader& header, const std::string& name) const;
  // Fills in the options of the model that depend on the training shard, such as the names of classes.
  virtual void complete(model::ModelOptions& /*model*/, const io::ShardHeader& /*header*/,
                        const std::string& /*name*/) const {}
  // Returns whether shards may come from a pipe, to be held in memory.
  virtual bool reads_pipes() const { return false; }
  // Returns the records as a dataset, which the records' source and all tokenizers must outlive. Logs truncated and
  // dropped records. Throws Error(input) for a damaged shard, for classes other than the model's, and for a shard
  // without labels to learn from; Error(usage) for options that leave no room for rows, and for two segments if the
  // model has one. A text is checked while it is read.
  virtual std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                        const DatasetOptions& options) const = 0;
};
Registry<Task>& tasks();

// Return a task with its default options. Throw std::logic_error for a model without a task, and Error(input) for a
// shard of an unknown kind.
std::unique_ptr<Task> task_of(const model::ModelOptions& model);
std::unique_ptr<Task> task_of_kind(const std::string& kind, const std::string& shard);

// Returns the names of all scores of all tasks.
const std::vector<std::string>& all_score_names();

// Throws Error(usage) if the rows have more segments (`segments`) than the model.
void require_segments(int64_t segments, const DatasetOptions& options, const std::string& shard);

}  // namespace mh::task
