// The task "translation": predicts the target of a sentence pair from the source.
//
// Scores: bleu, of the model's translations of the sources, with the targets as references.
#include "text/records/translation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/pairs.h"
#include "distributed/stop_signal.h"
#include "io/shard.h"
#include "model/language_model.h"
#include "task/task.h"
#include "task/translator.h"
#include "text/tokenizers.h"

namespace mh::task {

namespace {

constexpr const char* kBleu = "bleu";

class PairsDataset : public Dataset {
 public:
  PairsDataset(data::Pairs pairs, const SourceTargetTokenizers& tokenizers, std::string shard_name)
      : pairs_(std::move(pairs)), tokenizers_(tokenizers), shard_name_(std::move(shard_name)) {}
  const data::Pairs& corpus() const override { return pairs_; }
  std::string name() const override { return text::kPairsKind; }
  void check(model::LanguageModel& model) const override {
    model.require_length("the longest sentence of " + shard_name_, pairs_.max_length());
  }
  std::vector<std::string> score_names() const override { return {kBleu}; }
  Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const override {
    Evaluation result = evaluation_of(
        task::score(model, pairs_, options.scoring, {{}, options.on_progress, options.observer, options.group}));
    if (options.metric != kBleu || distributed::agree_on_stop_signal(options.group) != 0) return result;
    EvaluationOptions score_options = options;
    score_options.observer = nullptr, score_options.on_progress = {};
    score_options.decoding.translation.max_source_tokens =
        std::max<int64_t>(1, pairs_.max_length());  // the model supports this length, as check() ensures
    result.scores = {{kBleu, score(model, kBleu, score_options)}};
    return result;
  }
  double score(model::LanguageModel& model, const std::string&, const EvaluationOptions& options) const override {
    Translator translator(model, tokenizers_, options.decoding.translation);
    translator.set_observer(options.observer);
    translator.set_group(options.group);
    return bleu_of(translator, pairs_, shard_name_, options.decoding.bleu, options.on_progress).score;
  }
  void check_score(model::LanguageModel& model, const std::string&, const EvaluationOptions& options) const override {
    Translator(model, tokenizers_, options.decoding.translation);
  }
  const data::Pairs& require_pairs(const std::string&, const std::string&) const override { return pairs_; }

 private:
  data::Pairs pairs_;
  SourceTargetTokenizers tokenizers_;
  std::string shard_name_;
};

class Translation : public Task {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Translation>(*this); }
  const char* prediction_noun() const override { return "translations"; }
  const char* record_kind() const override { return text::kPairsKind; }
  bool serves(const model::ModelOptions& model_options) const override {
    return model::example_type_of(model_options) == model::ExampleType::pairs;
  }
  TaskTraits traits() const override { return {.has_perplexity = true, .row_noun = "pairs"}; }
  std::vector<ScoreSpec> scores() const override {
    return {{.name = kBleu,
             .meaning = "BLEU of the translations of the sources against the references, from 0 to 100.",
             .label = "BLEU",
             .digits = 2,
             .needs_decoding = true}};
  }
  void check(const data::BatchOptions& batch, int64_t validation_sequence_length) const override {
    Task::check(batch, validation_sequence_length);
    if (validation_sequence_length > 0)
      refuse_usage("train.validation.sequence_length", "0, since whole sentences are scored",
                   str(validation_sequence_length), "leave train.validation.sequence_length out");
  }
  bool reads_pipes() const override { return true; }
  std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                const DatasetOptions&) const override {
    records.verify();  // throws for a token outside its vocabulary, since the token would be an index out of range
    return std::make_unique<PairsDataset>(
        data::Pairs(records.sequences(), tokenizers.source_or_target().end_of_line_id(),
                    tokenizers.target->end_of_line_id()),
        SourceTargetTokenizers(tokenizers), records.name());
  }
};

const Registration<Translation> translation_entry(tasks(), "translation",
                                                  "translation of sentences into another language");

}  // namespace

}  // namespace mh::task
