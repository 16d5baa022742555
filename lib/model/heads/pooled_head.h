// Parts that heads of an encoder share: dense layers, the pooler p = tanh(W h_0 + b), and the loss of classes.
#pragma once

#include "model/model_config.h"
#include "model/output.h"
#include "nn/parameter.h"

namespace mh::model {

// y = W x + b.
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
  // (B, T, d) -> (B, d)
  at::Tensor operator()(const at::Tensor& hidden) const;

 private:
  Dense dense_;
};

// Cross-entropy of logits (B, C) and classes (B), of which negative ones are not scored.
nn::SlicedLoss class_loss(const at::Tensor& logits, const at::Tensor& classes, double smoothing);

// log p of the classes (B), 0 where the class is negative.
at::Tensor class_log_probabilities(const at::Tensor& logits, const at::Tensor& classes);

// A dense layer on the dropped-out output of the pooler.
class PooledHead : public OutputLayer {
 public:
  PooledHead(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name, int64_t out);
  // (B, 1, out)
  at::Tensor logits(const at::Tensor& hidden) const override;

 protected:
  // (B, out)
  at::Tensor scores(const at::Tensor& hidden, const nn::ForwardContext& step) const;

 private:
  double dropout_;
  Pooler pooler_;
  Dense dense_;
};

}  // namespace mh::model
