// The task head "span" predicts the first and last position of an answer in a text (extractive question answering).
// Each position t has two scores, W h_t + b. The softmax of the first scores over all positions is the distribution of
// the answer's first position; the softmax of the second scores is the distribution of its last position.

#include "model/heads/pooled_head.h"
#include "model/task_head.h"
#include "nn/aten.h"
#include "nn/device.h"

namespace mh::model {

namespace {

// The loss of a text is the mean of the losses of the answer's first and last position.
class SpanHead : public OutputLayer {
 public:
  SpanHead(nn::ParameterList& parameters, const ModelOptions& o) : dense_(parameters, "head.span", o, 2) {}
  // Returns the scores (B, T, 2) of each position as the first and as the last position of the answer.
  at::Tensor logits(const at::Tensor& hidden) const override { return dense_(hidden).to(at::kFloat); }

  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext&) const override {
    const SpanTargets span = span_targets(hidden, targets.values);
    const at::Tensor is_scored = span.target_positions.select(1, 0).ge(0);
    const at::Tensor nll = -(span.target_log_p().mean(1) * is_scored).sum();
    nn::SlicedLoss result{nll, nll.detach().to(at::kDouble), targets.values.select(1, 0).ge(0).sum().item<int64_t>()};
    if (label_smoothing == 0) return result;
    const at::Tensor uniform_nll =
        -(span.log_p.masked_fill(span.is_padding.unsqueeze(2), 0).sum(1) / span.lengths).mean(1);
    result.smoothed = nll * (1 - label_smoothing) + (uniform_nll * is_scored).sum() * label_smoothing;
    return result;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    const SpanTargets span = span_targets(hidden, targets);
    return nn::cat({span.target_log_p() * span.target_positions.ge(0), at::zeros_like(span.lengths, at::kFloat)}, 1);
  }

 private:
  // Log-probabilities and targets of the answer's first and last position. Padding positions have probability 0, so
  // that the probabilities of a text do not depend on the other texts in the batch.
  struct SpanTargets {
    at::Tensor log_p;  // (B, T, 2): log p of each position as the first and as the last position of the answer
    at::Tensor target_positions;  // (B, 2) int64: first and last position of the answer; negative: not scored
    at::Tensor lengths;           // (B, 1) int64: length of each text
    at::Tensor is_padding;        // (B, T) bool
    // Returns the log-probabilities (B, 2) of the target positions.
    at::Tensor target_log_p() const { return log_p.gather(1, target_positions.clamp_min(0).unsqueeze(1)).squeeze(1); }
  };
  SpanTargets span_targets(const at::Tensor& hidden, const at::Tensor& targets) const {
    const at::Tensor device_targets = nn::to_device(targets, hidden.device()),
                     lengths = device_targets.narrow(1, 2, 1).neg();
    const at::Tensor is_padding = at::arange(hidden.size(1), lengths.options()).unsqueeze(0).ge(lengths);
    return {at::log_softmax(logits(hidden).masked_fill(is_padding.unsqueeze(2), -1e30), 1),
            device_targets.narrow(1, 0, 2), lengths, is_padding};
  }

  Dense dense_;
};

class SpanTaskHead : public TaskHead {
 public:
  bool has_pooler(const BertOptions&) const override { return false; }
  bool has_transform() const override { return false; }
  std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& o,
                                    const TokenEmbedding& /*embedding*/, int64_t /*vocabulary_size*/) const override {
    return std::make_unique<SpanHead>(parameters, o);
  }
};

const Registration<SpanTaskHead> span_head_entry(task_heads(), "span", "first and last position of an answer");

}  // namespace

}  // namespace mh::model
