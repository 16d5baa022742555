// The task head "classes" predicts the class of a text: logits W dropout(p) + b (C), with p (d) the output of the
// pooler.

#include "model/heads/pooled_head.h"
#include "model/task_head.h"
#include "nn/aten.h"

namespace mh::model {

namespace {

class ClassesHead : public PooledHead {
 public:
  ClassesHead(nn::ParameterList& parameters, const ModelOptions& o)
      : PooledHead(parameters, o, "head.classes", o.bert.classes) {}
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext& forward_context) const override {
    return class_loss(scores(hidden, forward_context), targets.values.select(1, 0), label_smoothing);
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return class_log_probabilities(scores(hidden, {}), targets.select(1, 0)).unsqueeze(1);
  }
};

class ClassesTaskHead : public TaskHead {
 public:
  bool has_classes() const override { return true; }
  std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& o,
                                    const TokenEmbedding& /*embedding*/, int64_t /*vocabulary_size*/) const override {
    return std::make_unique<ClassesHead>(parameters, o);
  }
};

const Registration<ClassesTaskHead> classes_head_entry(task_heads(), "classes", "class of a text");

}  // namespace

}  // namespace mh::model
