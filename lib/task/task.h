// The interface of tasks. A task turns the records of a shard into rows, defines the scores of a model on these rows,
// and has options. Each task is one source file of this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "data/batch_options.h"
#include "data/corpus.h"
#include "model/model_config.h"
#include "task/token_score.h"
#include "task/translator.h"
#include "text/records/shard_records.h"

namespace mh {
class Config;
class Fields;
}  // namespace mh

namespace mh::task {

// Describes a score that the datasets of a task compute for a model; the value of a score is in NamedScores.
struct ScoreSpec {
  std::string name;             // name in configurations, logs and tables
  std::string meaning = {};     // meaning of the score in this task, with its range or unit
  std::string label = name;     // name in messages and plots
  int digits = 4;               // number of decimals in messages
  bool needs_decoding = false;  // whether the score compares decoded text with references (EvaluationOptions::decoding)
};

using NamedScores = std::vector<std::pair<std::string, double>>;  // (name, value), in the order that the task chooses
// Returns the score with this name; NaN if `scores` lacks it.
double score_named(const NamedScores& scores, const std::string& name);

// The results of a model on a dataset.
struct Evaluation {
  // Texts and pairs: mean loss in nats per scored token. Examples: mean loss of the output head per scored target
  // (nats, or squared error of numbers), plus the mean next-sentence loss if there is one.
  double loss = 0;
  int64_t num_rows = 0;    // number of scored examples, fewer than all after a stop signal; 0 for texts and pairs
  int64_t num_scored = 0;  // number of scored targets, that is, targets with a known value
  NamedScores scores;      // scores of the task; may be empty, for example if no label is known or after a stop signal
  // Functions that return the contents of the files of Dataset::output_files(), by name; empty unless all rows were
  // scored. The dataset must outlive the functions.
  std::map<std::string, std::function<std::string()>> output_files;
};

// Names of output files: all predictions, and the best answers to each question with their scores.
constexpr const char* kPredictions = "predictions";
constexpr const char* kBestAnswers = "best-answers";

// Converts a summed negative log-likelihood to an evaluation, with the mean loss per token and the number of scored
// tokens.
Evaluation evaluation_of(const NllSum& score);

struct EvaluationOptions {
  data::ScoringOptions scoring = {};     // for a text, scoring.sequence_length must be above 0
  std::string metric = "loss";           // name of a score that evaluate() must compute; "loss": no further score
  DecodingOptions decoding = {};         // options of scores that need decoding
  std::string model_name = "the model";  // name of the model in errors, such as the path of its checkpoint
  // Observes forward passes; evaluate() calls the observer when the loss is computed, not while decoding. May be null.
  attention::Observer* observer = nullptr;
  std::function<void(int64_t num_completed, int64_t total)> on_progress = {};  // receives numbers of rows; may be empty
  // The processes that share the batches; null: one process. Every process calls evaluate() and receives the same
  // result. Requires that `observer` is null.
  const distributed::Group* group = nullptr;
};

// The records of a shard, as rows for training or scoring.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const data::Corpus& corpus() const = 0;
  // Returns the name of the data set in the header of the shard, such as "mrpc"; the kind of the shard if the header
  // has no such name.
  virtual std::string name() const = 0;
  // Throws Error(input) if no record has a label or an answer, so that the loss is undefined.
  virtual void require_targets() const {}
  // Throws Error(usage) if the model does not support the records, for example their length.
  virtual void check(model::LanguageModel& /*model*/) const {}

  // Returns the names of the scores of this dataset, except the loss and the scores that cover only some records, such
  // as possible_exact.
  virtual std::vector<std::string> score_names() const { return {}; }
  // Returns the loss, all scores that need no further forward pass, and the score options.metric. Returns early after a
  // stop signal (base/signals.h).
  virtual Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const = 0;
  // Returns the score `name`, one of score_names().
  virtual double score(model::LanguageModel& model, const std::string& name, const EvaluationOptions& options) const;
  // Throws Error(usage) if the model or the options do not support the score `name`.
  virtual void check_score(model::LanguageModel& /*model*/, const std::string& /*name*/,
                           const EvaluationOptions& /*options*/) const {}

  // Returns the names of the files in Evaluation::output_files: kPredictions and others in the formats of official
  // scoring scripts and evaluation servers.
  virtual std::vector<std::string> output_files() const { return {}; }
  // Returns the options of the task that affect its scores, as (column name, value) for the table of results.
  virtual nlohmann::ordered_json columns() const;

  // Returns the sentence pairs, whose sources can be translated. Throws Error(usage) about the command-line options
  // `options` if the rows of the shard `shard` are not pairs.
  virtual const data::Pairs& require_pairs(const std::string& options, const std::string& shard) const;
};

// Options of Task::open().
struct DatasetOptions {
  model::BertOptions bert;
  int64_t sequence_length = 512;  // maximum number of tokens in an example
  uint64_t seed = 1;              // seed of masks and sampled rows in training
  // true: training. Unlabelled examples are an error, and a question whose answer is not in the paragraph has no rows.
  // false: scoring. Masks are drawn with seed 1, so that all models are scored on the same masked words.
  bool is_training = false;
};

// Properties of a task that determine which options of training apply to it.
struct TaskTraits {
  bool has_perplexity = false;  // whether the loss is in nats per token, so that exp(loss) is a perplexity
  // Whether rows are consecutive parts of a text, so that streams, memory and rows of any length are possible. Without
  // this order, train.batch.order has only its default.
  bool has_text_order = false;
  bool counts_rows = false;       // whether the keys train.batch.rows, bucket_updates and long_sequence_length apply
  const char* row_noun = "rows";  // plural noun for the rows in messages
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::unique_ptr<Task> clone() const = 0;
  // Returns a plural noun for the predictions of the model, for messages: "masked words".
  virtual const char* prediction_noun() const = 0;
  // Returns the kind of the shards that the task reads (io/record_kind.h).
  virtual const char* record_kind() const = 0;
  // Returns whether models with these options are trained and scored on this task.
  virtual bool serves(const model::ModelOptions& model_options) const = 0;
  virtual TaskTraits traits() const = 0;
  // Returns all scores that Dataset::score_names() of a dataset of the task can name.
  virtual std::vector<ScoreSpec> scores() const { return {}; }

  // Returns the configuration section of the task's options; "" if the task has no options.
  virtual const char* section() const { return ""; }
  virtual void describe(Fields& /*f*/) {}
  // Returns whether the options affect scores, so that tools that score a model accept them.
  virtual bool options_affect_scores() const { return false; }
  // Throws Error(usage) for keys of [train.batch], and for a length of the rows in validation
  // (train.validation.sequence_length), that do not apply to the task, and for options of the task that contradict
  // them. The base class checks the keys that traits() determines; an override calls the base class first.
  virtual void check(const data::BatchOptions& batch, int64_t validation_sequence_length) const;
  // Sets the options that a configuration of an earlier version lacks to values that reproduce the behaviour of that
  // version.
  virtual void set_legacy_defaults(Config& /*config*/, int64_t /*long_sequence_length*/) const {}
  // Returns the maximum number of predicted tokens in a row; nullopt if the options of the task have no such limit.
  virtual std::optional<int64_t> max_predictions() const { return {}; }
  // Returns a copy of the task for the second phase of training, in which rows have `long_sequence_length` tokens
  // (train.batch.long_sequence_length) instead of `sequence_length` tokens.
  virtual std::unique_ptr<Task> clone_for_long_rows(int64_t /*sequence_length*/,
                                                    int64_t /*long_sequence_length*/) const {
    return clone();
  }

  // Returns configuration assignments, such as "model.bert.head='classes'", that give a model an output head for the
  // shard `name`. By default, throws Error(input), since models of the task have no task head.
  virtual std::vector<std::string> head_assignments(const io::ShardHeader& header, const std::string& name) const;
  // Sets the model options that depend on the training shard `name`, such as the names of classes.
  virtual void set_shard_options(model::ModelOptions& /*model_options*/, const io::ShardHeader& /*header*/,
                                 const std::string& /*name*/) const {}
  // Returns whether shards may be read from a pipe; a shard from a pipe is in memory as a whole.
  virtual bool reads_pipes() const { return false; }
  // Opens the records of a shard as a dataset. The records and the tokenizers must outlive the dataset. Logs how many
  // records are truncated or left out. Throws Error(input) if the shard is damaged, if the tokenizer of examples is not
  // WordPiece, if the classes differ from the classes of the model, or if labels are missing in training. Throws
  // Error(usage) if model.bert.classes is 0 for a shard of classes, if options.sequence_length leaves no room for text,
  // if rows have two segments and the model supports one, or if next-sentence prediction has only one document. The
  // tokens of a text are verified only when they are read.
  virtual std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                        const DatasetOptions& options) const = 0;
};
Registry<Task>& tasks();

// Returns the task of models with these options, with default task options. Throws std::logic_error if there is none.
std::unique_ptr<Task> task_of(const model::ModelOptions& model_options);
// Returns the task that reads shards of a kind, with default task options. Throws Error(input) about the file `shard`
// for an unknown kind.
std::unique_ptr<Task> task_of_kind(const std::string& kind, const std::string& shard);

// Returns the scores of all tasks, without duplicates, in the order of the record kinds (io/record_kind.h).
const std::vector<ScoreSpec>& all_scores();
// Returns the score `name`; for a name that no task declares, such as "loss", a ScoreSpec with this name and defaults.
ScoreSpec score_spec(const std::string& name);
std::vector<std::string> names_of(const std::vector<ScoreSpec>& scores);
// Returns the names of the scores that need decoding.
std::vector<std::string> decoded_score_names();

// Throws Error(usage) if the rows of the shard have `segments` segments and the model supports fewer
// (options.bert.segments).
void require_segments(int64_t segments, const DatasetOptions& options, const std::string& shard);

}  // namespace mh::task
