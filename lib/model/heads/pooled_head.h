// Components that task heads share: dense layers, the pooler of the last hidden state h_0 of the first token, and the
// loss of classification.
#pragma once

#include <memory>

#include "model/block.h"
#include "model/model_config.h"
#include "model/output.h"
#include "nn/parameter.h"

namespace mh::model {

// A dense layer, y = W x + b, with the parameters `name`.weight (num_outputs, d) and, with `has_bias`, `name`.bias
// (num_outputs).
class Dense {
 public:
  Dense(nn::ParameterList& parameters, const std::string& name, const ModelOptions& o, int64_t num_outputs,
        bool has_bias = true);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  nn::Parameter& weight_;
  nn::Parameter* bias_;  // null: no bias
};

// The pooler that model.bert.pooler selects, p = tanh(W h_0 + b) or p = norm(activation(W h_0 + b)), with the
// parameters pooler.weight (d, d), pooler.bias (d) with model.bert.transform_bias, and pooler.norm.
class Pooler {
 public:
  Pooler(nn::ParameterList& parameters, const ModelOptions& o);
  // Returns p (B, d) for the last hidden states `hidden` (B, T, d).
  at::Tensor operator()(const at::Tensor& hidden) const;

 private:
  Dense dense_;
  nn::Activation activation_;
  std::unique_ptr<NormLayer> norm_;  // null: tanh
};

// Returns the cross-entropy in nats, summed over the rows, of `logits` (B, C) and the targets `classes` (B), int64;
// rows with class -1 are not scored. `label_smoothing`: as in train.label_smoothing.
nn::SlicedLoss class_loss(const at::Tensor& logits, const at::Tensor& classes, double label_smoothing);

// Returns log p(class) (B), nats, for `logits` (B, C) and `classes` (B), int64; 0 where the class is negative.
at::Tensor class_log_probabilities(const at::Tensor& logits, const at::Tensor& classes);

// A task head that makes one prediction for a text: pooler, dropout, dense layer.
class PooledHead : public OutputLayer {
 public:
  PooledHead(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name, int64_t num_outputs);
  // Returns the outputs of the dense layer (B, 1, num_outputs) for `hidden` (B, T, d), without dropout.
  at::Tensor logits(const at::Tensor& hidden) const override;

 protected:
  // Returns the outputs of the dense layer (B, num_outputs) for `hidden` (B, T, d), with dropout in training.
  at::Tensor scores(const at::Tensor& hidden, const nn::ForwardContext& forward_context) const;

 private:
  double dropout_;
  Pooler pooler_;
  Dense dense_;
};

}  // namespace mh::model
