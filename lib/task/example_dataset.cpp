#include "task/example_dataset.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "attention/stage.h"
#include "base/error.h"
#include "base/signals.h"
#include "model/language_model.h"
#include "nn/aten.h"

namespace mh::task {

namespace {

// Sums of the loss of an evaluation. The mean over words (or classes, numbers, spans) and the mean over next-sentence
// classes are computed separately, since the proportion of the two varies between batches.
struct Loss {
  double sum = 0, next = 0;
  int64_t scored = 0, nexts = 0;
  void add(const ScoredExamples& outputs) {
    const nn::SlicedLoss plain = outputs.model.loss(outputs.hidden, {outputs.batch.targets, 0}, 0);
    sum += plain.nll.item<double>(), scored += plain.scored;
    if (!outputs.next.defined()) return;
    const at::Tensor labels = outputs.batch.targets.select(1, 0);
    next += at::cross_entropy_loss(outputs.next, labels.to(outputs.next.device()), {}, at::Reduction::Sum, -1)
                .item<double>();
    nexts += labels.ge(0).sum().item<int64_t>();
  }
  // Returns the mean loss per target plus the mean next-sentence loss, in nats; NaN if no target was scored.
  double mean() const {
    if (scored == 0 && nexts == 0) return std::numeric_limits<double>::quiet_NaN();
    return sum / static_cast<double>(std::max<int64_t>(1, scored)) +
           next / static_cast<double>(std::max<int64_t>(1, nexts));
  }
};

constexpr int64_t kTokens = 4096;  // maximum number of tokens in a batch of several rows, padding included

}  // namespace

const at::Tensor& require_finite(const at::Tensor& logits) {
  if (!logits.isfinite().all().item<bool>())
    throw Error(Exit::failed, Problem{"the model", "finite logits", "NaN or infinity",
                                      "use another checkpoint: the parameters are damaged, or training diverged"});
  return logits;
}

void require_known(bool any, const std::string& name) {
  if (!any)
    throw Error(Exit::input, Problem{name, "labels or answers, which the loss requires",
                                     "records without labels or answers", "use a shard with labels or answers"});
}

Evaluation ExampleDataset::evaluate(model::LanguageModel& model, const EvaluationOptions& options) const {
  c10::NoGradGuard no_gradient;
  const data::ExampleSource& source = examples_.source();
  const at::Device device = model.parameters().device();
  std::vector<int64_t> order(static_cast<size_t>(source.rows(0)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return source.length(0, a) > source.length(0, b); });
  const std::unique_ptr<ExampleTally> tally = this->tally();
  Loss loss;
  Evaluation result;
  const auto all = static_cast<int64_t>(order.size());
  while (result.rows < all && stop_signal() == 0) {
    const int64_t widest = source.length(0, order[static_cast<size_t>(result.rows)]);
    const auto begin = order.begin() + result.rows;
    const std::vector<int64_t> rows(begin, begin + std::min(all - result.rows, std::max<int64_t>(1, kTokens / widest)));
    std::vector<text::Example> batch_examples;
    batch_examples.reserve(rows.size());
    for (int64_t row : rows) batch_examples.push_back(source.make(0, row));
    const data::Batch batch = load_examples(examples_, batch_examples);
    if (options.observer != nullptr) options.observer->begin(batch.input.lengths);
    const at::Tensor hidden = model.hidden(batch.input.to(device), {}, nullptr, options.observer);
    const ScoredExamples outputs{model, rows, batch, hidden, model.sentence_logits(hidden)};
    loss.add(outputs);
    tally->add(outputs);
    result.rows += static_cast<int64_t>(rows.size());
    if (options.progress) options.progress(result.rows, all);
  }
  result.loss = loss.mean();
  result.scored = loss.scored;
  if (result.rows == all) tally->finish(result);
  return result;
}

}  // namespace mh::task
