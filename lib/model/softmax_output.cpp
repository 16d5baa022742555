// The output layer with a single softmax over the whole vocabulary (full softmax). Its logits are the products of the
// hidden states and the table, multiplied by model.output_scale, and bounded by model.output_soft_cap if it is not 0.
#include "model/inits.h"
#include "model/output.h"

namespace mh::model {

namespace {

class SoftmaxOutput : public OutputLayer {
 public:
  SoftmaxOutput(nn::ParameterList& parameters, const ModelOptions& o, const TokenEmbedding& embedding,
                int64_t vocabulary_size)
      : vocabulary_size_(vocabulary_size),
        num_scored_rows_(num_scored_rows(o, vocabulary_size)),
        scaling_{o.output_scale, o.output_soft_cap} {
    const int64_t num_rows = num_table_rows(o, vocabulary_size);
    weight_ = o.tied ? embedding.bands()[0].table
                     : &parameters.add("decoder.output.weight", {num_rows, o.width},
                                       {embedding_init(o, o.width), true, true});
    if (o.output_bias)
      bias_ = &parameters.add("decoder.output.bias", {num_rows}, {nn::Init::constant(0), false, false});
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    const at::Tensor products = nn::linear(hidden, {weight_}, {bias_}).narrow(-1, 0, vocabulary_size_).to(at::kFloat);
    return nn::scale_logits(products, scaling_);
  }

  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext&) const override {
    const at::Tensor device_values =
        targets.device_values.defined() ? targets.device_values.flatten() : targets.device_values;
    return nn::sliced_cross_entropy(hidden.flatten(0, 1), weight_->value(), bias(), targets.values.flatten(),
                                    num_scored_rows_, label_smoothing, {scaling_, device_values});
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return nn::sliced_log_probabilities(hidden.flatten(0, 1), weight_->value(), bias(), targets.flatten(),
                                        num_scored_rows_, scaling_)
        .view(targets.sizes());
  }

 private:
  at::Tensor bias() const { return bias_ != nullptr ? bias_->value() : at::Tensor(); }

  int64_t vocabulary_size_, num_scored_rows_;
  nn::LogitScaling scaling_;
  nn::Parameter *weight_ = nullptr, *bias_ = nullptr;
};

}  // namespace

std::unique_ptr<OutputLayer> make_softmax_output(nn::ParameterList& parameters, const ModelOptions& o,
                                                 const TokenEmbedding& embedding, int64_t vocabulary_size) {
  return std::make_unique<SoftmaxOutput>(parameters, o, embedding, vocabulary_size);
}

}  // namespace mh::model
