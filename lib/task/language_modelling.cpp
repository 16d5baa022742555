// The task "language-modelling": predicts each token of a text from the tokens before it.
#include "text/records/language_modelling.h"

#include <memory>
#include <vector>

#include "data/text.h"
#include "io/shard.h"
#include "model/language_model.h"
#include "task/task.h"
#include "text/tokenizers.h"

namespace mh::task {

namespace {

class TextDataset : public Dataset {
 public:
  explicit TextDataset(data::Text text) : text_(std::move(text)) {}
  const data::Text& corpus() const override { return text_; }
  std::string name() const override { return text::kTextKind; }
  Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const override {
    return evaluation_of(
        task::score(model, text_, options.scoring, {{}, options.on_progress, options.observer, options.group}));
  }

 private:
  data::Text text_;
};

class LanguageModelling : public Task {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<LanguageModelling>(*this); }
  const char* prediction_noun() const override { return "tokens of a text"; }
  const char* record_kind() const override { return text::kTextKind; }
  bool serves(const model::ModelOptions& model_options) const override {
    return model::example_type_of(model_options) == model::ExampleType::text;
  }
  TaskTraits traits() const override { return {.has_perplexity = true, .has_text_order = true}; }
  bool reads_pipes() const override { return true; }
  std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                const DatasetOptions& options) const override {
    data::Text text(static_cast<int64_t>(records.counts().num_tokens), tokenizers.target->end_of_line_id(),
                    [reader = records.reader()](int64_t first, std::span<int32_t> out) {
                      reader(static_cast<uint64_t>(first), out);
                    });
    text.begin_id = tokenizers.target->begin_id();
    // Training does not split a text at documents, so it does not need the lengths of the records.
    if (!options.is_training && text.begin_id >= 0 && text::has_documents(records.header())) {
      const std::vector<uint64_t> ends = records.sequences().ends;
      text.document_ends = std::make_shared<const std::vector<int64_t>>(ends.begin(), ends.end());
    }
    return std::make_unique<TextDataset>(std::move(text));
  }
};

const Registration<LanguageModelling> language_modelling_entry(
    tasks(), "language-modelling", "prediction of each token of a text from the tokens before it");

}  // namespace

}  // namespace mh::task
