// The task head "number" predicts a number for a text: W dropout(p) + b, with p (d) the output of the pooler.

#include "model/heads/pooled_head.h"
#include "model/task_head.h"
#include "nn/aten.h"
#include "nn/device.h"

namespace mh::model {

namespace {

// Regression: loss() returns the sum of squared errors instead of the cross-entropy.
class NumberHead : public PooledHead {
 public:
  NumberHead(nn::ParameterList& parameters, const ModelOptions& o) : PooledHead(parameters, o, "head.number", 1) {}
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double,
                      const nn::ForwardContext& forward_context) const override {
    const at::Tensor sum = squared_errors(scores(hidden, forward_context), targets.values).sum();
    return {sum, sum.detach().to(at::kDouble), targets.values.ge(0).sum().item<int64_t>()};
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return -squared_errors(scores(hidden, {}), targets);
  }

 private:
  // Returns the squared errors (B, 1) of `predictions` (B, 1) for targets (B, 1) in thousandths; 0 where the target is
  // negative.
  static at::Tensor squared_errors(const at::Tensor& predictions, const at::Tensor& targets) {
    const at::Tensor device_targets = nn::to_device(targets, predictions.device());
    return (predictions - device_targets.to(at::kFloat) * 0.001).square() * device_targets.ge(0);
  }
};

class NumberTaskHead : public TaskHead {
 public:
  std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& o,
                                    const TokenEmbedding& /*embedding*/, int64_t /*vocabulary_size*/) const override {
    return std::make_unique<NumberHead>(parameters, o);
  }
};

const Registration<NumberTaskHead> number_head_entry(task_heads(), "number",
                                                     "one real number predicted for each text (regression)");

}  // namespace

}  // namespace mh::model
