// The task "masked-words": the pre-training of BERT on documents (Devlin et al. 2019), which predicts masked words and
// whether the second segment of a row follows the first in its document (next sentence).
//
// Scores: word_accuracy, the fraction of masked words that are predicted correctly; with model.bert.next_sentence also
// next_accuracy, the fraction of rows with a correct next-sentence prediction.
#include "text/records/masked_words.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "base/config.h"
#include "base/error.h"
#include "ceil_div.h"
#include "io/shard.h"
#include "nn/aten.h"
#include "task/example_dataset.h"
#include "text/encoder_vocabulary.h"
#include "text/tokenizers.h"

namespace mh::task {

namespace {

// The source of rows that are sampled from documents in each epoch. Caches the segments that were sampled for the last
// requested epoch; make() reads and masks their tokens.
class DocumentSource : public data::ExampleSource {
 public:
  DocumentSource(text::Sequences sequences, const text::Tokenizer& tokenizer, const text::PretrainingOptions& options,
                 uint64_t seed)
      : pretraining_(std::move(sequences), tokenizer, options, seed) {}
  int64_t num_rows(int64_t epoch) const override { return epoch_plan(epoch)->size(); }
  int64_t length(int64_t epoch, int64_t row) const override { return epoch_plan(epoch)->length(row); }
  text::Example make(int64_t epoch, int64_t row) const override { return epoch_plan(epoch)->make(row); }
  double next_sentence_weight(int64_t epoch, std::span<const int64_t> update_rows) const override {
    return epoch_plan(epoch)->next_sentence_weight(update_rows);
  }

 private:
  std::shared_ptr<const text::PretrainingExamples::Epoch> epoch_plan(int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    if (epoch_plan_ == nullptr || epoch != epoch_) {
      epoch_plan_ = std::make_shared<const text::PretrainingExamples::Epoch>(
          pretraining_.plan_epoch(static_cast<uint32_t>(epoch)));
      epoch_ = epoch;
    }
    return epoch_plan_;
  }
  text::PretrainingExamples pretraining_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const text::PretrainingExamples::Epoch> epoch_plan_;
  mutable int64_t epoch_ = 0;
};

double fraction_of(int64_t num_correct, int64_t total) {
  return total > 0 ? static_cast<double>(num_correct) / static_cast<double>(total)
                   : std::numeric_limits<double>::quiet_NaN();
}

class WordTally : public ExampleTally {
 public:
  // Returns four counts, (4) int64: masked words, correct predictions of masked words, next-sentence classes, correct
  // predictions of next-sentence classes.
  at::Tensor reduce(const ForwardedExamples& outputs) const override {
    const at::Tensor& targets = outputs.batch.targets;
    at::Tensor is_scored = targets.ge(0);
    const at::Tensor next_sentence_labels = targets.select(1, 0),
                     has_next_sentence_label = is_scored.select(1, 0).clone();
    is_scored.select(1, 0).fill_(false);
    const at::Tensor positions = is_scored.flatten().nonzero().squeeze(1);
    const at::Tensor labels = targets.flatten().index_select(0, positions);
    const at::Tensor masked_states =
        outputs.hidden.flatten(0, 1).index_select(0, positions.to(outputs.hidden.device()));
    int64_t num_correct_words = 0;
    for (int64_t begin = 0; begin < masked_states.size(0); begin += kMaxPositions) {
      const int64_t n = std::min(kMaxPositions, masked_states.size(0) - begin);
      const at::Tensor logits =
          require_finite(outputs.model.logits(masked_states.narrow(0, begin, n).unsqueeze(0)), outputs.model_name);
      const at::Tensor predicted_tokens = logits[0].argmax(1).to(at::kCPU);
      num_correct_words += predicted_tokens.eq(labels.narrow(0, begin, n)).sum().item<int64_t>();
    }
    int64_t num_next_sentence = 0, num_correct_next_sentence = 0;
    if (outputs.next_sentence_logits.defined()) {
      const at::Tensor predicted_labels = outputs.next_sentence_logits.argmax(1).to(at::kCPU);
      num_next_sentence = has_next_sentence_label.sum().item<int64_t>();
      num_correct_next_sentence =
          (predicted_labels.eq(next_sentence_labels) & has_next_sentence_label).sum().item<int64_t>();
    }
    return at::tensor({positions.numel(), num_correct_words, num_next_sentence, num_correct_next_sentence}, at::kLong);
  }
  void add(const ExampleBatch&, const at::Tensor& counts) override {
    const auto* count = counts.const_data_ptr<int64_t>();
    num_words_ += count[0], num_correct_words_ += count[1];
    num_next_sentence_ += count[2], num_correct_next_sentence_ += count[3];
  }
  void finish(Evaluation& result) override {
    result.scores = {{"word_accuracy", fraction_of(num_correct_words_, num_words_)}};
    if (num_next_sentence_ > 0)
      result.scores.emplace_back("next_accuracy", fraction_of(num_correct_next_sentence_, num_next_sentence_));
  }

 private:
  static constexpr int64_t kMaxPositions = 256;  // limit on the positions whose logits are in memory at a time
  int64_t num_words_ = 0, num_correct_words_ = 0, num_next_sentence_ = 0, num_correct_next_sentence_ = 0;
};

class MaskedWordsDataset : public ExampleDataset {
 public:
  using ExampleDataset::ExampleDataset;
  std::string name() const override { return text::kDocumentsKind; }
  std::vector<std::string> score_names() const override { return {"word_accuracy", "next_accuracy"}; }

 protected:
  std::unique_ptr<ExampleTally> make_tally() const override { return std::make_unique<WordTally>(); }
};

class MaskedWords : public Task {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<MaskedWords>(*this); }
  const char* prediction_noun() const override { return "masked words"; }
  const char* record_kind() const override { return text::kDocumentsKind; }
  bool serves(const model::ModelOptions& model_options) const override {
    return model::example_type_of(model_options) == model::ExampleType::examples && model_options.bert.head == "words";
  }
  TaskTraits traits() const override { return {.counts_rows = true}; }
  std::vector<ScoreSpec> scores() const override {
    return {{"word_accuracy", "Proportion of masked words that are predicted correctly, from 0 to 1."},
            {"next_accuracy",
             "Proportion of rows with a correct next-sentence prediction, from 0 to 1; only with "
             "model.bert.next_sentence=true."}};
  }

  const char* section() const override { return "mlm"; }
  void describe(Fields& f) override { options_.describe(f); }
  void check(const data::BatchOptions& batch, int64_t validation_sequence_length) const override {
    Task::check(batch, validation_sequence_length);
    if (options_.max_long_predictions > 0 && batch.long_sequence_length == 0)
      refuse_usage("mlm.long_predictions", "0, unless train.batch.long_sequence_length is set",
                   str(options_.max_long_predictions),
                   "set train.batch.long_sequence_length, or use mlm.max_predictions instead");
  }
  // If the configuration is from a version without the key mlm.long_predictions, sets this key to mlm.max_predictions,
  // which was the limit of these versions for rows of train.batch.long_sequence_length tokens as well.
  void set_legacy_defaults(Config& config, int64_t long_sequence_length) const override {
    const auto stored_keys = config.keys_below(section());
    if (long_sequence_length == 0 || stored_keys.empty() ||
        std::find(stored_keys.begin(), stored_keys.end(), "long_predictions") != stored_keys.end())
      return;
    text::PretrainingOptions options;
    config.read(section(), options);
    config.set(str("mlm.long_predictions=", options.max_predictions));
  }
  std::optional<int64_t> max_predictions() const override { return options_.max_predictions; }
  // Returns a copy of the task whose mlm.max_predictions is mlm.long_predictions or, if mlm.long_predictions is 0,
  // min(mlm.max_predictions, sequence_length) · long_sequence_length / sequence_length, rounded up.
  std::unique_ptr<Task> clone_for_long_rows(int64_t sequence_length, int64_t long_sequence_length) const override {
    auto task = std::make_unique<MaskedWords>(*this);
    const int64_t max_predictions =
        std::min(options_.max_predictions, sequence_length);  // at most one prediction per token
    task->options_.max_predictions = options_.max_long_predictions > 0
                                         ? options_.max_long_predictions
                                         : ceil_div(max_predictions * long_sequence_length, sequence_length);
    return task;
  }

  std::vector<std::string> head_assignments(const io::ShardHeader&, const std::string&) const override {
    return {"model.bert.head='words'", "model.bert.classes=0", "model.bert.labels=[]"};
  }
  std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                const DatasetOptions& dataset_options) const override {
    records.verify();  // throws for a token outside the vocabulary, since the token would be an index out of range
    const text::Tokenizer& tokenizer = *tokenizers.target;
    const text::EncoderTokens special_tokens = text::encoder_tokens(tokenizer, records.name());
    text::PretrainingOptions options = options_;
    options.next_sentence = dataset_options.bert.next_sentence;
    options.max_length = dataset_options.sequence_length;
    if (options.next_sentence) require_segments(special_tokens.num_segments(2), dataset_options, records.name());
    constexpr uint64_t kScoringSeed = 1;
    return std::make_unique<MaskedWordsDataset>(data::Examples(
        std::make_shared<DocumentSource>(records.sequences(), tokenizer, options,
                                         dataset_options.is_training ? dataset_options.seed : kScoringSeed),
        special_tokens.padding_id));
  }

 private:
  text::PretrainingOptions options_;
};

const Registration<MaskedWords> masked_words_entry(tasks(), "masked-words",
                                                   "prediction of masked words and next sentences of documents");

}  // namespace

}  // namespace mh::task
