// Building blocks that an encoder's heads share: dense layers, the pooler p = tanh(W h_0 + b), and the loss of classes.
#pragma once

#include "model/model_config.h"
#include "model/output.h"
#include "nn/parameter.h"

namespace mh::model {

// A dense layer, y = W x + b.
class Dense {
 public:
  Dense(nn::ParameterList& parameters, const std::string& name, const ModelOptions& o, int64_t out);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  nn::Parameter &weight_, &bias_;
};

class Pooler {
 public:
  Pooler(nn::ParameterList& parameters, const ModelOptions& o);
  // Returns p (B, d) for hidden (B, T, d).
  at::Tensor operator()(const at::Tensor& hidden) const;

 private:
  Dense dense_;
};

// Returns the cross-entropy of logits (B, C) with classes (B); negative classes are not scored.
nn::SlicedLoss class_loss(const at::Tensor& logits, const at::Tensor& classes, double smoothing);

// Returns log p(class) (B), nats; 0 where the class is negative.
at::Tensor class_log_probabilities(const at::Tensor& logits, const at::Tensor& classes);

// A head of a text as a whole: pooler, dropout, dense layer.
class PooledHead : public OutputLayer {
 public:
  PooledHead(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name, int64_t out);
  // Returns (B, 1, out) for hidden (B, T, d).
  at::Tensor logits(const at::Tensor& hidden) const override;

 protected:
  // Returns (B, out) for hidden (B, T, d), with dropout in training.
  at::Tensor scores(const at::Tensor& hidden, const nn::ForwardContext& step) const;

 private:
  double dropout_;
  Pooler pooler_;
  Dense dense_;
};

}  // namespace mh::model
