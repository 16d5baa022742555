// The task "questions": extractive question answering, which predicts the span of a paragraph that answers a question,
// or predicts that there is no such span. Data sets are SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018).
//
// Scores: exact and f1 in percent, as computed by SQuAD's official scripts. If questions may be unanswerable, also
// possible_exact and possible_f1 over the answerable questions, and impossible_exact and impossible_f1 over the others.
#include "text/records/questions.h"

#include <algorithm>

#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "io/shard.h"
#include "metrics/answers.h"
#include "metrics/predictions.h"
#include "model/language_model.h"
#include "nn/aten.h"
#include "task/example_dataset.h"
#include "text/encoder_vocabulary.h"
#include "text/tokenizers.h"

namespace mh::task {

namespace {

// Options of the section [squad]: how paragraphs are split into windows, and how answers are selected.
struct QuestionOptions {
  text::WindowOptions windows;
  metrics::AnswerOptions answers;
  void describe(Fields& f) {
    f.section("", windows);
    f.section("", answers);
  }
};

class QuestionExamples : public FixedExamples<text::Questions> {
 public:
  using FixedExamples::FixedExamples;
  bool needs_lengths() const override { return true; }
};

class SpanTally : public ExampleTally {
 public:
  explicit SpanTally(const text::Questions& questions, const metrics::AnswerOptions& options)
      : questions_(questions), search_(questions, options) {}
  // Returns the logits of the start and of the end of the answer, (2, B, T).
  at::Tensor reduce(const ForwardedExamples& outputs) const override {
    return require_finite(outputs.model.logits(outputs.hidden), outputs.model_name)
        .to(at::kCPU)
        .permute({2, 0, 1})
        .contiguous();
  }
  void add(const ExampleBatch& batch, const at::Tensor& logits) override {
    const std::vector<int64_t>& rows = batch.rows;
    const auto width = static_cast<size_t>(logits.size(2));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto length = static_cast<size_t>(batch.batch.input.lengths.encoder.const_data_ptr<int64_t>()[i]);
      const auto logits_of = [&](size_t boundary) {  // 0: start, 1: end
        return std::span(logits.const_data_ptr<float>() + (boundary * rows.size() + i) * width, length);
      };
      search_.add(rows[i], logits_of(0), logits_of(1));
    }
  }
  void finish(Evaluation& result) override {
    metrics::Predictions predictions;
    std::vector<metrics::Answers> answers;
    for (size_t q = 0; q < questions_.questions().size(); ++q) {
      const auto [first, end] = questions_.rows_of(static_cast<int64_t>(q));
      answers.push_back(first < end ? search_.answers(static_cast<int64_t>(q)) : metrics::Answers{});
      if (first < end) predictions[questions_.questions()[q].id] = answers.back().text;
    }
    const metrics::PredictionScores scores = metrics::score_predictions(questions_, predictions);
    const auto add_scores = [&](const std::string& prefix, const metrics::AnswerScoreMean& subset_scores) {
      result.scores.emplace_back(prefix + "exact", subset_scores.mean_percent().exact);
      result.scores.emplace_back(prefix + "f1", subset_scores.mean_percent().f1);
    };
    add_scores("", scores.all_questions);
    if (questions_.may_have_unanswerable()) {
      add_scores("possible_", scores.answerable_questions);
      add_scores("impossible_", scores.unanswerable_questions);
    }
    const auto shared_answers = std::make_shared<const std::vector<metrics::Answers>>(std::move(answers));
    result.output_files[kPredictions] = [&questions = questions_, shared_answers] {
      return metrics::predictions_json(questions, *shared_answers);
    };
    result.output_files[kBestAnswers] = [&questions = questions_, shared_answers] {
      return metrics::best_answers_json(questions, *shared_answers);
    };
  }

 private:
  const text::Questions& questions_;
  metrics::AnswerSearch search_;
};

class QuestionsDataset : public ExampleDataset {
 public:
  QuestionsDataset(const std::shared_ptr<const text::Questions>& questions, int32_t padding_id,
                   const QuestionOptions& options, std::string shard_name)
      : ExampleDataset(data::Examples(std::make_shared<QuestionExamples>(questions), padding_id)),
        questions_(questions),
        options_(options),
        shard_name_(std::move(shard_name)) {}
  std::string name() const override { return text::kQuestionsKind; }
  void require_targets() const override {
    require_any_target(
        std::ranges::any_of(questions_->questions(),
                            [](const text::Question& q) { return q.is_unanswerable || !q.answers.empty(); }),
        shard_name_, "answers");
  }
  std::vector<std::string> score_names() const override { return {"exact", "f1"}; }
  std::vector<std::string> output_files() const override { return {kPredictions, kBestAnswers}; }
  nlohmann::ordered_json columns() const override {
    return {{"stride", options_.windows.stride},
            {"question", options_.windows.max_question_tokens},
            {"best", options_.answers.num_best_answers},
            {"longest_answer", options_.answers.max_answer_tokens},
            {"null_threshold", options_.answers.null_threshold}};
  }

 protected:
  std::unique_ptr<ExampleTally> make_tally() const override {
    return std::make_unique<SpanTally>(*questions_, options_.answers);
  }

 private:
  std::shared_ptr<const text::Questions> questions_;
  QuestionOptions options_;
  std::string shard_name_;
};

// Logs to how many questions `action`, such as "truncated", was applied; nothing for 0 questions.
void log_questions(const char* action, int64_t count, const std::string& description) {
  if (count > 0) log_info(str(action, " ", count_with_commas(count, "question"), description));
}

class Questions : public Task {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Questions>(*this); }
  const char* prediction_noun() const override { return "answers"; }
  const char* record_kind() const override { return text::kQuestionsKind; }
  bool serves(const model::ModelOptions& model_options) const override {
    return model::example_type_of(model_options) == model::ExampleType::examples && model_options.bert.head == "span";
  }
  TaskTraits traits() const override { return {.counts_rows = true}; }
  std::vector<ScoreSpec> scores() const override {
    return {
        {"exact",
         "Percentage of questions whose predicted answer equals a true answer, as computed by the script of SQuAD. "
         "If questions may be unanswerable, possible_exact is the same percentage over the answerable questions only, "
         "and impossible_exact over the unanswerable questions only."},
        {"f1",
         "Mean over questions of the F1 of the words of the predicted and the true answer, in percent, as computed "
         "by the script of SQuAD. If questions may be unanswerable, possible_f1 is the mean over the "
         "answerable questions only, and impossible_f1 over the unanswerable questions only."}};
  }

  const char* section() const override { return "squad"; }
  void describe(Fields& f) override { options_.describe(f); }
  bool options_affect_scores() const override { return true; }

  std::vector<std::string> head_assignments(const io::ShardHeader&, const std::string&) const override {
    return {"model.bert.head='span'",         "model.bert.classes=0",     "model.bert.labels=[]",
            "model.bert.next_sentence=false", "model.bert.pooler='tanh'", "model.bert.transform_bias=true"};
  }
  std::unique_ptr<Dataset> open(const text::ShardRecords& records, const text::Tokenizers& tokenizers,
                                const DatasetOptions& options) const override {
    records.verify();  // throws for a token outside the vocabulary, since the token would be an index out of range
    const std::string& name = records.name();
    const text::Tokenizer& tokenizer = *tokenizers.target;
    const text::EncoderTokens special_tokens = text::encoder_tokens(tokenizer, name);
    text::WindowOptions windows = options_.windows;
    windows.max_length = options.sequence_length;
    windows.check(special_tokens.num_special_tokens(2));
    require_segments(special_tokens.num_segments(2), options, name);
    const auto questions = std::make_shared<const text::Questions>(
        records.sequences(), records.header(), tokenizer, windows,
        options.is_training ? text::QuestionUse::training : text::QuestionUse::prediction, name);
    log_questions("truncated", questions->num_truncated(),
                  str(" of ", name, " to ", count_of(windows.max_question_tokens, "token")));
    log_questions("omitted", questions->num_without_windows(),
                  str(" of ", name, ", since the paragraph does not contain the answer"));
    return std::make_unique<QuestionsDataset>(questions, special_tokens.padding_id, options_, name);
  }

 private:
  QuestionOptions options_;
};

const Registration<Questions> questions_entry(tasks(), "questions",
                                              "prediction of answers to questions, as spans of paragraphs");

}  // namespace

}  // namespace mh::task
