#include "task/example_scores.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/stage.h"
#include "base/error.h"
#include "base/signals.h"
#include "model/language_model.h"
#include "task/example_options.h"
#include "task/metrics.h"
#include "task/predictions.h"
#include "task/rows.h"

namespace mh::task {

namespace {

using model::HeadTask;

// What the scores of a head are made of, batch after batch.
class Tally {
 public:
  virtual ~Tally() = default;
  // `rows` are those of the batch, in its order; targets (B, n) on the CPU.
  virtual void add(model::LanguageModel& model, const std::vector<int64_t>& rows, const Batch& batch,
                   const at::Tensor& hidden) = 0;
  virtual void finish(ExampleScores& result) = 0;
};

double share(int64_t right, int64_t all) {
  return all > 0 ? static_cast<double>(right) / static_cast<double>(all) : std::numeric_limits<double>::quiet_NaN();
}

class WordsTally : public Tally {
 public:
  void add(model::LanguageModel& model, const std::vector<int64_t>&, const Batch& batch,
           const at::Tensor& hidden) override {
    at::Tensor asked = batch.targets.ge(0);
    const at::Tensor first = batch.targets.select(1, 0), is_first = asked.select(1, 0).clone();
    asked.select(1, 0).fill_(false);
    const at::Tensor places = asked.flatten().nonzero().squeeze(1);
    const at::Tensor wanted = batch.targets.flatten().index_select(0, places);
    const at::Tensor states = hidden.flatten(0, 1).index_select(0, places.to(hidden.device()));
    for (int64_t at = 0; at < states.size(0); at += kAtOnce) {
      const int64_t n = std::min(kAtOnce, states.size(0) - at);
      const at::Tensor found = model.logits(states.narrow(0, at, n).unsqueeze(0))[0].argmax(1).to(at::kCPU);
      right_ += found.eq(wanted.narrow(0, at, n)).sum().item<int64_t>();
    }
    words_ += places.numel();
    const at::Tensor next = model.sentence_logits(hidden);
    if (!next.defined()) return;
    right_next_ += (next.argmax(1).to(at::kCPU).eq(first) & is_first).sum().item<int64_t>();
    nexts_ += is_first.sum().item<int64_t>();
  }
  void finish(ExampleScores& result) override {
    result.scores = {{"word_accuracy", share(right_, words_)}};
    if (nexts_ > 0) result.scores.emplace_back("next_accuracy", share(right_next_, nexts_));
  }

 private:
  static constexpr int64_t kAtOnce = 256;  // rows of logits held
  int64_t words_ = 0, right_ = 0, nexts_ = 0, right_next_ = 0;
};

class ClassesTally : public Tally {
 public:
  ClassesTally(const std::vector<std::string>& scores, int64_t rows)
      : scores_(scores), truth_(static_cast<size_t>(rows), -1), found_(truth_) {}
  void add(model::LanguageModel& model, const std::vector<int64_t>& rows, const Batch& batch,
           const at::Tensor& hidden) override {
    const at::Tensor best = model.logits(hidden).select(1, 0).argmax(1).to(at::kCPU);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]), at = i;
      truth_[row] = static_cast<int32_t>(batch.targets.const_data_ptr<int64_t>()[at]);
      found_[row] = static_cast<int32_t>(best.const_data_ptr<int64_t>()[at]);
    }
  }
  void finish(ExampleScores& result) override {
    std::vector<int32_t> truth, found;
    for (size_t i = 0; i < truth_.size(); ++i)
      if (truth_[i] >= 0) truth.push_back(truth_[i]), found.push_back(found_[i]);
    for (const std::string& name : scores_)
      if (!truth.empty())
        result.scores.emplace_back(name, name == "f1"         ? f1(truth, found)
                                         : name == "matthews" ? matthews(truth, found)
                                                              : accuracy(truth, found));
    result.predicted.assign(found_.begin(), found_.end());
  }

 private:
  std::vector<std::string> scores_;
  std::vector<int32_t> truth_, found_;
};

class NumbersTally : public Tally {
 public:
  NumbersTally(const std::vector<std::string>& scores, int64_t rows)
      : scores_(scores), truth_(static_cast<size_t>(rows), -1), found_(truth_) {}
  void add(model::LanguageModel& model, const std::vector<int64_t>& rows, const Batch& batch,
           const at::Tensor& hidden) override {
    const at::Tensor numbers = model.logits(hidden).flatten().to(at::kCPU).contiguous();
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      truth_[row] = static_cast<double>(batch.targets.const_data_ptr<int64_t>()[i]) * 0.001;
      found_[row] = static_cast<double>(numbers.const_data_ptr<float>()[i]);
    }
  }
  void finish(ExampleScores& result) override {
    std::vector<double> truth, found;
    for (size_t i = 0; i < truth_.size(); ++i)
      if (truth_[i] >= 0) truth.push_back(truth_[i]), found.push_back(found_[i]);
    for (const std::string& name : scores_)
      if (!truth.empty())
        result.scores.emplace_back(name, name == "pearson" ? pearson(truth, found) : spearman(truth, found));
    result.predicted = std::move(found_);
  }

 private:
  std::vector<std::string> scores_;
  std::vector<double> truth_, found_;
};

class SpansTally : public Tally {
 public:
  explicit SpansTally(const QuestionTask& task) : questions_(task.questions), search_(task.questions, task.answers) {}
  void add(model::LanguageModel& model, const std::vector<int64_t>& rows, const Batch& batch,
           const at::Tensor& hidden) override {
    const at::Tensor scores = model.logits(hidden).to(at::kCPU).permute({2, 0, 1}).contiguous();  // (2, B, T)
    const auto width = static_cast<size_t>(scores.size(2));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto real = static_cast<size_t>(batch.input.lengths.encoder.const_data_ptr<int64_t>()[i]);
      const auto of = [&](size_t end) {
        return std::span(scores.const_data_ptr<float>() + (end * rows.size() + i) * width, real);
      };
      search_.add(rows[i], of(0), of(1));
    }
  }
  void finish(ExampleScores& result) override {
    Predictions predictions;
    for (size_t q = 0; q < questions_.questions().size(); ++q) {
      const auto [first, end] = questions_.rows_of(static_cast<int64_t>(q));
      result.answers.push_back(first < end ? search_.answers(static_cast<int64_t>(q)) : Answers{});
      if (first < end) predictions[questions_.questions()[q].id] = result.answers.back().text;
    }
    const PredictionScores scores = score_predictions(questions_, predictions);
    const auto add = [&](const std::string& prefix, const AnswerScores& part) {
      result.scores.emplace_back(prefix + "exact", part.percent().exact);
      result.scores.emplace_back(prefix + "f1", part.percent().f1);
    };
    add("", scores.all);
    if (!questions_.unanswerable()) return;
    add("possible_", scores.possible);
    add("impossible_", scores.impossible);
  }

 private:
  const Questions& questions_;
  AnswerSearch search_;
};

std::unique_ptr<Tally> tally_for(const Examples& examples) {
  switch (examples.head) {
    case HeadTask::words:
      return std::make_unique<WordsTally>();
    case HeadTask::classes:
      return std::make_unique<ClassesTally>(score_names(examples), examples.size());
    case HeadTask::number:
      return std::make_unique<NumbersTally>(score_names(examples), examples.size());
    case HeadTask::span:
      return std::make_unique<SpansTally>(*examples.asked);
  }
  return nullptr;
}

// The mean loss over words and that over next sentences are apart: batches hold other shares of them.
struct Loss {
  double sum = 0, next = 0;
  int64_t scored = 0, nexts = 0;
  void add(model::LanguageModel& model, const Batch& batch, const at::Tensor& hidden, bool words) {
    const model::SlicedLoss plain = model.loss(hidden, {batch.targets, 0}, 0);
    sum += plain.nll, scored += plain.scored;
    const at::Tensor logits = words ? model.sentence_logits(hidden) : at::Tensor();
    if (!logits.defined()) return;
    const at::Tensor wanted = batch.targets.select(1, 0);
    next += at::cross_entropy_loss(logits, wanted.to(logits.device()), {}, at::Reduction::Sum, -1).item<double>();
    nexts += wanted.ge(0).sum().item<int64_t>();
  }
  double mean() const {
    return sum / static_cast<double>(std::max<int64_t>(1, scored)) +
           next / static_cast<double>(std::max<int64_t>(1, nexts));
  }
};

constexpr int64_t kTokens = 4096;  // of a batch, filled up

}  // namespace

double score_named(const NamedScores& scores, const std::string& name) {
  for (const auto& [found, value] : scores)
    if (found == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::string> score_names(const Examples& examples) {
  switch (examples.head) {
    case HeadTask::words:
      return {"word_accuracy", "next_accuracy"};
    case HeadTask::span:
      return {"exact", "f1"};
    default:
      return examples.classified->task().metrics;
  }
}

ExampleScores score_examples(model::LanguageModel& model, const Examples& examples, const ExampleListener& listener) {
  c10::NoGradGuard no_gradient;
  const ExampleSource& source = *examples.source;
  const at::Device device = model.parameters().device();
  std::vector<int64_t> order(static_cast<size_t>(source.rows(0)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return source.length(0, a) > source.length(0, b); });
  const std::unique_ptr<Tally> tally = tally_for(examples);
  Loss loss;
  ExampleScores result;
  const auto all = static_cast<int64_t>(order.size());
  while (result.rows < all && stop_signal() == 0) {
    const int64_t widest = source.length(0, order[static_cast<size_t>(result.rows)]);
    const auto begin = order.begin() + result.rows;
    const std::vector<int64_t> rows(begin, begin + std::min(all - result.rows, std::max<int64_t>(1, kTokens / widest)));
    std::vector<Example> examples_now;
    for (int64_t row : rows) examples_now.push_back(source.make(0, row));
    const Batch batch = load_examples(examples, examples_now);
    if (listener.observer != nullptr) listener.observer->begin(batch.input.lengths);
    const at::Tensor hidden = model.hidden(batch.input.to(device), {}, nullptr, listener.observer);
    loss.add(model, batch, hidden, examples.head == HeadTask::words);
    tally->add(model, rows, batch, hidden);
    result.rows += static_cast<int64_t>(rows.size());
    if (listener.progress) listener.progress(result.rows, all);
  }
  result.loss = loss.mean();
  result.scored = loss.scored;
  if (result.rows == all) tally->finish(result);
  return result;
}

}  // namespace mh::task
