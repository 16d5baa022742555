// What makes scores of the vocabulary's entries from the last hidden state. A backbone knows no more of it than this.
#pragma once

#include <memory>

#include "model/model_config.h"
#include "model/token_embedding.h"
#include "nn/forward_context.h"
#include "nn/ops.h"

namespace mh::model {

class OutputLayer {
 public:
  virtual ~OutputLayer() = default;
  // Those of LanguageModel (language_model.h), which says what they are.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  virtual at::Tensor sentence_logits(const at::Tensor& /*hidden*/) const { return {}; }
  virtual nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                              const nn::ForwardContext& step) const = 0;
  virtual at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
};

// An adaptive softmax where model.output_cutoffs has some, and else a full one. Where model.tied says so its weights
// are those of `embedding`.
std::unique_ptr<OutputLayer> make_output(nn::ParameterList& parameters, const ModelOptions& options,
                                         const TokenEmbedding& embedding, int64_t vocabulary);

std::unique_ptr<OutputLayer> softmax_output(nn::ParameterList& parameters, const ModelOptions& options,
                                            const TokenEmbedding& embedding, int64_t vocabulary);
std::unique_ptr<OutputLayer> adaptive_output(nn::ParameterList& parameters, const ModelOptions& options,
                                             const TokenEmbedding& embedding, int64_t vocabulary);

}  // namespace mh::model
