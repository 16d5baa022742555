#include "task/example_dataset.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "attention/stage.h"
#include "base/error.h"
#include "distributed/ordered_work.h"
#include "model/language_model.h"
#include "nn/aten.h"

namespace mh::task {

namespace {

// Sums of the losses of an evaluation. The mean over words (or classes, numbers, spans) and the mean over next-sentence
// classes are computed separately, since the ratio of words to next-sentence classes varies between batches.
struct LossSums {
  // Summed losses of the targets and of the next-sentence classes: nats, or squared errors of numbers.
  double nll = 0, next_sentence_nll = 0;
  int64_t num_scored = 0, num_next_sentence = 0;
  // Returns the sums of one batch, (4) fp64: nll, num_scored, next_sentence_nll, num_next_sentence.
  static at::Tensor reduce(const ForwardedExamples& outputs) {
    const nn::SlicedLoss loss = outputs.model.loss(outputs.hidden, {outputs.batch.targets, 0}, 0);
    const at::Tensor sums = at::zeros({4}, at::kDouble);
    sums[0] = loss.nll.item<double>(), sums[1] = loss.num_scored;
    if (!outputs.next_sentence_logits.defined()) return sums;
    const at::Tensor labels = outputs.batch.targets.select(1, 0);
    sums[2] = at::cross_entropy_loss(outputs.next_sentence_logits, labels.to(outputs.next_sentence_logits.device()), {},
                                     at::Reduction::Sum, -1)
                  .item<double>();
    sums[3] = labels.ge(0).sum().item<int64_t>();
    return sums;
  }
  // Adds the sums of one batch, a result of reduce().
  void add(const at::Tensor& sums) {
    nll += sums[0].item<double>(), num_scored += sums[1].item<int64_t>();
    next_sentence_nll += sums[2].item<double>(), num_next_sentence += sums[3].item<int64_t>();
  }
  // Returns the mean loss per target plus the mean next-sentence loss; NaN if neither targets nor next-sentence classes
  // were scored.
  double mean() const {
    if (num_scored == 0 && num_next_sentence == 0) return std::numeric_limits<double>::quiet_NaN();
    return nll / static_cast<double>(std::max<int64_t>(1, num_scored)) +
           next_sentence_nll / static_cast<double>(std::max<int64_t>(1, num_next_sentence));
  }
};

constexpr int64_t kMaxBatchTokens = 4096;  // maximum number of tokens in a batch of several rows, padding included

}  // namespace

const at::Tensor& require_finite(const at::Tensor& logits, const std::string& model_name) {
  if (!logits.isfinite().all().item<bool>())
    throw Error(Exit::failed, Problem{model_name, "finite logits", "NaN or infinity",
                                      "use another checkpoint: the parameters are damaged, or training diverged"});
  return logits;
}

void require_any_target(bool has_targets, const std::string& name, const char* targets) {
  if (!has_targets)
    refuse_input(name, str(targets, ", which the loss requires"), str("records without ", targets),
                 str("use a shard with ", targets));
}

Evaluation ExampleDataset::evaluate(model::LanguageModel& model, const EvaluationOptions& options) const {
  c10::NoGradGuard no_gradient;
  const data::ExampleSource& source = examples_.source();
  const at::Device device = model.parameters().device();
  std::vector<int64_t> order(static_cast<size_t>(source.num_rows(0)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return source.length(0, a) > source.length(0, b); });
  const std::unique_ptr<ExampleTally> tally = make_tally();
  LossSums loss_sums;
  Evaluation result;
  const auto num_rows = static_cast<int64_t>(order.size());
  distributed::OrderedWork work(options.group);
  if (work.is_shared() && options.observer != nullptr)
    throw std::logic_error("ExampleDataset::evaluate(): several processes cannot share the batches of an observer");
  int64_t first_row = 0;
  for (int64_t unit = 0; first_row < num_rows && !work.is_stopped(); ++unit) {
    const int64_t max_length = source.length(0, order[static_cast<size_t>(first_row)]);
    const auto begin = order.begin() + first_row;
    const auto batch = std::make_shared<ExampleBatch>();
    batch->rows.assign(begin,
                       begin + std::min(num_rows - first_row, std::max<int64_t>(1, kMaxBatchTokens / max_length)));
    first_row += static_cast<int64_t>(batch->rows.size());
    std::vector<text::Example> batch_examples;
    batch_examples.reserve(batch->rows.size());
    for (int64_t row : batch->rows) batch_examples.push_back(source.make(0, row));
    batch->batch = load_examples(examples_, batch_examples);
    const auto compute = [&]() -> distributed::OrderedWork::Results {
      if (options.observer != nullptr) options.observer->begin_batch(batch->batch.input.lengths);
      const at::Tensor hidden = model.hidden(batch->batch.input.to(device), {}, nullptr, options.observer);
      const ForwardedExamples outputs{
          model, batch->rows, batch->batch, hidden, model.next_sentence_logits(hidden), options.model_name};
      return {LossSums::reduce(outputs), tally->reduce(outputs)};
    };
    work.add(unit, compute, [&, batch](const distributed::OrderedWork::Results& results) {
      loss_sums.add(results[0]);
      tally->add(*batch, results[1]);
      result.num_rows += static_cast<int64_t>(batch->rows.size());
      if (options.on_progress) options.on_progress(result.num_rows, num_rows);
    });
  }
  if (!work.is_stopped()) work.finish();
  result.loss = loss_sums.mean();
  result.num_scored = loss_sums.num_scored;
  if (result.num_rows == num_rows) tally->finish(result);
  return result;
}

}  // namespace mh::task
