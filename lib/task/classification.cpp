// The task "classification": predicts the class of a text or of a pair of texts, or a number (regression), as in GLUE
// (Wang et al. 2018).
//
// Scores (metrics/scores.h): accuracy, f1 and matthews for classes, or pearson and spearman for numbers; the header of
// the shard lists which of these are computed.
#include "text/records/classification.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/shard.h"
#include "metrics/predictions.h"
#include "metrics/scores.h"
#include "model/language_model.h"
#include "nn/aten.h"
#include "task/example_dataset.h"
#include "text/encoder_vocabulary.h"
#include "text/tokenizers.h"

namespace mh::task {

namespace {

using text::ExampleTask;

double score_of(const std::string& name, std::span<const double> true_values, std::span<const double> predictions) {
  if (name == "pearson") return metrics::pearson(true_values, predictions);
  if (name == "spearman") return metrics::spearman(true_values, predictions);
  const std::vector<int32_t> true_classes(true_values.begin(), true_values.end()),
      predicted_classes(predictions.begin(), predictions.end());
  if (name == "f1") return metrics::f1(true_classes, predicted_classes);
  return name == "matthews" ? metrics::matthews(true_classes, predicted_classes)
                            : metrics::accuracy(true_classes, predicted_classes);
}

// Collects the true and the predicted class or number of each row.
class ClassTally : public ExampleTally {
 public:
  explicit ClassTally(const text::ClassificationExamples& examples)
      : task_(examples.task()),
        true_values_(static_cast<size_t>(examples.size()), -1),
        predicted_values_(true_values_) {}
  // Returns the predictions (B), fp64: classes or numbers.
  at::Tensor reduce(const ForwardedExamples& outputs) const override {
    const at::Tensor logits = require_finite(outputs.model.logits(outputs.hidden), outputs.model_name)
                                  .select(1, 0);  // (B, classes) or (B, 1)
    return (task_.is_number() ? logits.select(1, 0) : logits.argmax(1)).to(at::kCPU, at::kDouble).contiguous();
  }
  void add(const ExampleBatch& batch, const at::Tensor& batch_predictions) override {
    const double unit = task_.is_number() ? kNumberUnit : 1;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const auto row = static_cast<size_t>(batch.rows[i]);
      true_values_[row] = static_cast<double>(batch.batch.targets.const_data_ptr<int64_t>()[i]) * unit;
      predicted_values_[row] = batch_predictions.const_data_ptr<double>()[i];
    }
  }
  void finish(Evaluation& result) override {
    std::vector<double> true_values, predicted_values;
    for (size_t i = 0; i < true_values_.size(); ++i)
      if (true_values_[i] >= 0)
        true_values.push_back(true_values_[i]), predicted_values.push_back(predicted_values_[i]);
    for (const std::string& name : task_.metrics)
      if (!true_values.empty()) result.scores.emplace_back(name, score_of(name, true_values, predicted_values));
    result.output_files[kPredictions] = [task = task_, predictions = std::move(predicted_values_)] {
      return metrics::predictions_tsv(task, predictions);
    };
  }

 private:
  static constexpr double kNumberUnit = 0.001;  // shards store numbers in thousandths
  ExampleTask task_;
  std::vector<double> true_values_,
      predicted_values_;  // label and prediction of each row; a negative element of true_values_: unknown label
};

class ClassificationDataset : public ExampleDataset {
 public:
  ClassificationDataset(const std::shared_ptr<const text::ClassificationExamples>& examples, int32_t padding_id,
                        std::string shard_name)
      : ExampleDataset(
            data::Examples(std::make_shared<FixedExamples<text::ClassificationExamples>>(examples), padding_id)),
        examples_(examples),
        shard_name_(std::move(shard_name)) {}
  std::string name() const override { return examples_->task().name; }
  void require_targets() const override {
    require_any_target(examples_->num_unlabelled() < examples_->size(), shard_name_, "labels");
  }
  std::vector<std::string> score_names() const override { return examples_->task().metrics; }
  std::vector<std::string> output_files() const override { return {kPredictions}; }

 protected:
  std::unique_ptr<ExampleTally> make_tally() const override { return std::make_unique<ClassTally>(*examples_); }

 private:
  std::shared_ptr<const text::ClassificationExamples> examples_;
  std::string shard_name_;
};

// Throws Error(input) or Error(usage) if the output head of the model does not predict the labels of the shard.
void check_labels(const ExampleTask& task, const model::BertOptions& bert_options, const std::string& shard) {
  const auto refuse = [&](const std::string& expected, const std::string& found, const std::string& advice) {
    refuse_input(shard, expected, found, advice);
  };
  if (task.is_number() != (bert_options.head == "number"))
    refuse(str("labels that are ", task.is_number() ? "classes" : "numbers", ", since model.bert.head='",
               bert_options.head, "'"),
           str("labels that are ", task.is_number() ? "numbers" : "classes"),
           str("use a model with model.bert.head='", task.is_number() ? "number" : "classes", "'"));
  if (!task.is_number() && bert_options.classes == 0)
    refuse_usage("model.bert.classes", str(task.labels.size(), ", the number of classes of ", shard), "the default, 0",
                 str("set model.bert.classes=", task.labels.size()));
  if (!task.is_number() && static_cast<int64_t>(task.labels.size()) != bert_options.classes)
    refuse(str(count_of(bert_options.classes, "class"), ", the value of model.bert.classes"),
           count_of(task.labels.size(), "class"),
           str("use a shard with ", count_of(bert_options.classes, "class"),
               ", or a model with model.bert.classes=", task.labels.size()));
  if (!bert_options.labels.empty() && task.labels != bert_options.labels)
    refuse("the classes in the model's order, " + join(bert_options.labels, ", "), join(task.labels, ", "),
           "make the shard again with the classes in the model's order; if only the spelling of the classes differs, "
           "set model.bert.labels=[] instead");
}

class Classification : public Task {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Classification>(*this); }
  const char* prediction_noun() const override { return "classes or numbers"; }
  const char* record_kind() const override { return text::kExamplesKind; }
  bool serves(const model::ModelOptions& model_options) const override {
    return model::example_type_of(model_options) == model::ExampleType::examples &&
           (model_options.bert.head == "classes" || model_options.bert.head == "number");
  }
  TaskTraits traits() const override { return {.counts_rows = true}; }
  std::vector<ScoreSpec> scores() const override {
    return {
        {"accuracy", "Proportion of rows whose predicted class is the true class, from 0 to 1."},
        {"f1", "F1 of the second class, from 0 to 1; all other classes count as one class."},
        {"matthews",
         "Matthews correlation of true and predicted classes, from -1 to 1; 0 if all true or all predicted classes "
         "are equal."},
        {"pearson",
         "Pearson correlation of true and predicted numbers, from -1 to 1; nan if all true or all predicted numbers "
         "are equal."},
        {"spearman",
         "Spearman correlation of true and predicted numbers, from -1 to 1; nan if all true or all predicted "
         "numbers are equal."}};
  }

  std::vector<std::string> head_assignments(const io::ShardHeader& header, const std::string& name) const override {
    const ExampleTask task = text::task_of(header, name);
    std::vector<std::string> labels = task.labels;
    std::ranges::transform(labels, labels.begin(), quoted_toml);
    return {str("model.bert.head='", task.is_number() ? "number" : "classes", "'"),
            str("model.bert.classes=", labels.size()), "model.bert.labels=[" + join(labels, ", ") + "]",
            "model.bert.next_sentence=false"};
  }
  // Copies the names of the classes from the shard to model.bert.labels, so that a checkpoint contains the names. Does
  // nothing if model.bert.labels is set, or if the shard does not have model.bert.classes classes.
  void set_shard_options(model::ModelOptions& model_options, const io::ShardHeader& header,
                         const std::string& name) const override {
    if (model_options.bert.head != "classes" || !model_options.bert.labels.empty()) return;
    const std::vector<std::string> labels = text::task_of(header, name).labels;
    if (static_cast<int64_t>(labels.size()) == model_options.bert.classes) model_options.bert.labels = labels;
  }
  std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                const DatasetOptions& options) const override {
    records.verify();  // throws for tokens and labels that would be indices out of range
    const std::string& name = records.name();
    const text::Tokenizer& tokenizer = *tokenizers.target;
    const text::EncoderTokens special_tokens = text::encoder_tokens(tokenizer, name);
    const ExampleTask task = text::task_of(records.header(), name);
    check_labels(task, options.bert, name);
    require_segments(special_tokens.num_segments(task.num_sentences), options, name);
    const auto examples = std::make_shared<const text::ClassificationExamples>(records.sequences(), task, tokenizer,
                                                                               options.sequence_length);
    if (const int64_t num_unlabelled = examples->num_unlabelled(); options.is_training && num_unlabelled > 0)
      refuse_input(name, "a label for each training example",
                   str(num_unlabelled, " of ", count_of(examples->size(), "example"), " without a label"),
                   "use a shard whose examples all have labels");
    if (const int64_t num_truncated = examples->num_truncated(); num_truncated > 0)
      log_info(str("truncated ", with_commas(num_truncated), " of ", count_of(examples->size(), "row"), " of ", name,
                   " to ", count_of(options.sequence_length, "token")));
    return std::make_unique<ClassificationDataset>(examples, special_tokens.padding_id, name);
  }
};

const Registration<Classification> classification_entry(
    tasks(), "classification", "prediction of a class or a number for a text or a pair of texts");

}  // namespace

}  // namespace mh::task
