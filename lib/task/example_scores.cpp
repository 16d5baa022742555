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
#include "metrics/predictions.h"
#include "metrics/scores.h"
#include "model/language_model.h"
#include "task/example_options.h"
#include "task/rows.h"

namespace mh::task {

namespace {

using model::HeadTask;

// A batch and what the model made of it.
struct Seen {
  model::LanguageModel& model;
  const std::vector<int64_t>& rows;  // of the examples, in the batch's order
  const Batch& batch;                // targets (B, n) on the CPU
  at::Tensor hidden;                 // (B, T, d)
  at::Tensor next;                   // (B, 2): logits of the next sentence; undefined where the head has none
};

// What the scores of a head are made of, batch after batch.
class Tally {
 public:
  virtual ~Tally() = default;
  virtual void add(const Seen& seen) = 0;
  virtual void finish(ExampleScores& result) = 0;
};

double share(int64_t right, int64_t all) {
  return all > 0 ? static_cast<double>(right) / static_cast<double>(all) : std::numeric_limits<double>::quiet_NaN();
}

// Of what is not finite the largest is any.
const at::Tensor& finite(const at::Tensor& logits) {
  if (!logits.isfinite().all().item<bool>())
    throw Error(Exit::failed, Problem{"the model", "logits that are finite", "others",
                                      "its parameters are damaged, or its training diverged"});
  return logits;
}

class WordsTally : public Tally {
 public:
  void add(const Seen& seen) override {
    const at::Tensor& targets = seen.batch.targets;
    at::Tensor asked = targets.ge(0);
    const at::Tensor first = targets.select(1, 0), is_first = asked.select(1, 0).clone();
    asked.select(1, 0).fill_(false);
    const at::Tensor places = asked.flatten().nonzero().squeeze(1);
    const at::Tensor wanted = targets.flatten().index_select(0, places);
    const at::Tensor states = seen.hidden.flatten(0, 1).index_select(0, places.to(seen.hidden.device()));
    for (int64_t at = 0; at < states.size(0); at += kAtOnce) {
      const int64_t n = std::min(kAtOnce, states.size(0) - at);
      const at::Tensor logits = finite(seen.model.logits(states.narrow(0, at, n).unsqueeze(0)));
      const at::Tensor found = logits[0].argmax(1).to(at::kCPU);
      right_ += found.eq(wanted.narrow(0, at, n)).sum().item<int64_t>();
    }
    words_ += places.numel();
    if (!seen.next.defined()) return;
    right_next_ += (seen.next.argmax(1).to(at::kCPU).eq(first) & is_first).sum().item<int64_t>();
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

double score_of(const std::string& name, std::span<const double> truth, std::span<const double> found) {
  if (name == "pearson") return metrics::pearson(truth, found);
  if (name == "spearman") return metrics::spearman(truth, found);
  const std::vector<int32_t> classes(truth.begin(), truth.end()), predicted(found.begin(), found.end());
  if (name == "f1") return metrics::f1(classes, predicted);
  return name == "matthews" ? metrics::matthews(classes, predicted) : metrics::accuracy(classes, predicted);
}

// Of each row one value: its class, or its number.
class RowsTally : public Tally {
 public:
  explicit RowsTally(const Examples& examples)
      : names_(score_names(examples)),
        numbers_(examples.head == HeadTask::number),
        truth_(static_cast<size_t>(examples.size()), -1),
        found_(truth_) {}
  void add(const Seen& seen) override {
    const at::Tensor logits = finite(seen.model.logits(seen.hidden)).select(1, 0);  // (B, classes), or (B, 1)
    const at::Tensor values = (numbers_ ? logits.select(1, 0) : logits.argmax(1)).to(at::kCPU, at::kDouble);
    const double unit = numbers_ ? kNumberUnit : 1;
    for (size_t i = 0; i < seen.rows.size(); ++i) {
      const auto row = static_cast<size_t>(seen.rows[i]);
      truth_[row] = static_cast<double>(seen.batch.targets.const_data_ptr<int64_t>()[i]) * unit;
      found_[row] = values.const_data_ptr<double>()[i];
    }
  }
  void finish(ExampleScores& result) override {
    std::vector<double> truth, found;
    for (size_t i = 0; i < truth_.size(); ++i)
      if (truth_[i] >= 0) truth.push_back(truth_[i]), found.push_back(found_[i]);
    for (const std::string& name : names_)
      if (!truth.empty()) result.scores.emplace_back(name, score_of(name, truth, found));
    result.predicted = std::move(found_);
  }

 private:
  static constexpr double kNumberUnit = 0.001;  // of the numbers that a shard holds
  std::vector<std::string> names_;
  bool numbers_;
  std::vector<double> truth_, found_;  // truth: below 0 where it is not known
};

class SpansTally : public Tally {
 public:
  explicit SpansTally(const QuestionTask& task) : questions_(task.questions), search_(task.questions, task.answers) {}
  void add(const Seen& seen) override {
    const std::vector<int64_t>& rows = seen.rows;
    const at::Tensor scores =
        finite(seen.model.logits(seen.hidden)).to(at::kCPU).permute({2, 0, 1}).contiguous();  // (2, B, T)
    const auto width = static_cast<size_t>(scores.size(2));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto real = static_cast<size_t>(seen.batch.input.lengths.encoder.const_data_ptr<int64_t>()[i]);
      const auto of = [&](size_t end) {
        return std::span(scores.const_data_ptr<float>() + (end * rows.size() + i) * width, real);
      };
      search_.add(rows[i], of(0), of(1));
    }
  }
  void finish(ExampleScores& result) override {
    metrics::Predictions predictions;
    for (size_t q = 0; q < questions_.questions().size(); ++q) {
      const auto [first, end] = questions_.rows_of(static_cast<int64_t>(q));
      result.answers.push_back(first < end ? search_.answers(static_cast<int64_t>(q)) : metrics::Answers{});
      if (first < end) predictions[questions_.questions()[q].id] = result.answers.back().text;
    }
    const metrics::PredictionScores scores = metrics::score_predictions(questions_, predictions);
    const auto add = [&](const std::string& prefix, const metrics::AnswerScores& part) {
      result.scores.emplace_back(prefix + "exact", part.percent().exact);
      result.scores.emplace_back(prefix + "f1", part.percent().f1);
    };
    add("", scores.all);
    if (!questions_.unanswerable()) return;
    add("possible_", scores.possible);
    add("impossible_", scores.impossible);
  }

 private:
  const text::Questions& questions_;
  metrics::AnswerSearch search_;
};

std::unique_ptr<Tally> tally_for(const Examples& examples) {
  switch (examples.head) {
    case HeadTask::words:
      return std::make_unique<WordsTally>();
    case HeadTask::classes:
    case HeadTask::number:
      return std::make_unique<RowsTally>(examples);
    case HeadTask::span:
      return std::make_unique<SpansTally>(*examples.asked);
  }
  return nullptr;
}

// The mean loss over words and that over next sentences are apart: batches hold other shares of them.
struct Loss {
  double sum = 0, next = 0;
  int64_t scored = 0, nexts = 0;
  void add(const Seen& seen) {
    const nn::SlicedLoss plain = seen.model.loss(seen.hidden, {seen.batch.targets, 0}, 0);
    sum += plain.nll.item<double>(), scored += plain.scored;
    if (!seen.next.defined()) return;
    const at::Tensor wanted = seen.batch.targets.select(1, 0);
    next += at::cross_entropy_loss(seen.next, wanted.to(seen.next.device()), {}, at::Reduction::Sum, -1).item<double>();
    nexts += wanted.ge(0).sum().item<int64_t>();
  }
  // nan of nothing.
  double mean() const {
    if (scored == 0 && nexts == 0) return std::numeric_limits<double>::quiet_NaN();
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

const std::vector<std::string>& all_score_names() {
  static const std::vector<std::string> names{"accuracy", "f1",    "matthews",      "pearson",
                                              "spearman", "exact", "word_accuracy", "next_accuracy"};
  return names;
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
    std::vector<text::Example> examples_now;
    for (int64_t row : rows) examples_now.push_back(source.make(0, row));
    const Batch batch = load_examples(examples, examples_now);
    if (listener.observer != nullptr) listener.observer->begin(batch.input.lengths);
    const at::Tensor hidden = model.hidden(batch.input.to(device), {}, nullptr, listener.observer);
    const Seen seen{model, rows, batch, hidden,
                    examples.head == HeadTask::words ? model.sentence_logits(hidden) : at::Tensor()};
    loss.add(seen);
    tally->add(seen);
    result.rows += static_cast<int64_t>(rows.size());
    if (listener.progress) listener.progress(result.rows, all);
  }
  result.loss = loss.mean();
  result.scored = loss.scored;
  if (result.rows == all) tally->finish(result);
  return result;
}

}  // namespace mh::task
