// Dense layer, pooler and classification loss for task heads.
#include "model/heads/pooled_head.h"

#include "model/inits.h"
#include "nn/aten.h"
#include "nn/device.h"

namespace mh::model {

Dense::Dense(nn::ParameterList& parameters, const std::string& name, const ModelOptions& o, int64_t num_outputs,
             bool has_bias)
    : weight_(parameters.add(name + ".weight", {num_outputs, o.width}, {projection_init(o), true, true})),
      bias_(has_bias ? &parameters.add(name + ".bias", {num_outputs}, {nn::Init::constant(0), false, false})
                     : nullptr) {}

at::Tensor Dense::operator()(const at::Tensor& x) const { return nn::linear(x, {&weight_}, {bias_}); }

Pooler::Pooler(nn::ParameterList& parameters, const ModelOptions& o)
    : dense_(parameters, "pooler", o, o.width, o.bert.transform_bias),
      activation_(o.activation),
      norm_(o.bert.pooler == PoolerKind::transform ? std::make_unique<NormLayer>(parameters, "pooler.norm", o)
                                                   : nullptr) {}

at::Tensor Pooler::operator()(const at::Tensor& hidden) const {
  const at::Tensor y = dense_(hidden.select(1, 0));
  return norm_ != nullptr ? (*norm_)(nn::activation(y, activation_)) : at::tanh(y);
}

nn::SlicedLoss class_loss(const at::Tensor& logits, const at::Tensor& classes, double label_smoothing) {
  const at::Tensor scores = logits.to(at::kFloat), labels = nn::to_device(classes, scores.device());
  const auto loss = [&](double smoothing) {
    return at::cross_entropy_loss(scores, labels, {}, at::Reduction::Sum, /*ignore_index=*/-1, smoothing);
  };
  const at::Tensor smoothed = loss(label_smoothing), nll = label_smoothing == 0 ? smoothed : loss(0);
  return {smoothed, nll.detach().to(at::kDouble), classes.ge(0).sum().item<int64_t>()};
}

at::Tensor class_log_probabilities(const at::Tensor& logits, const at::Tensor& classes) {
  const at::Tensor labels = nn::to_device(classes, logits.device());
  return at::log_softmax(logits.to(at::kFloat), 1).gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1) *
         labels.ge(0);
}

PooledHead::PooledHead(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name,
                       int64_t num_outputs)
    : dropout_(o.dropout_output), pooler_(parameters, o), dense_(parameters, name, o, num_outputs) {}

at::Tensor PooledHead::logits(const at::Tensor& hidden) const { return scores(hidden, {}).unsqueeze(1); }

at::Tensor PooledHead::scores(const at::Tensor& hidden, const nn::ForwardContext& forward_context) const {
  return dense_(nn::dropout(pooler_(hidden), dropout_, forward_context, "output", 0)).to(at::kFloat);
}

}  // namespace mh::model
