// The interface of output layers, which compute scores of vocabulary entries, or the predictions of an encoder's task
// head, from the last hidden states.
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
  // LanguageModel has functions of the same names, which call these functions; language_model.h describes shapes and
  // errors.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  virtual at::Tensor next_sentence_logits(const at::Tensor& /*hidden*/) const { return {}; }
  virtual nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                              const nn::ForwardContext& forward_context) const = 0;
  virtual at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
};

// Creates an adaptive softmax if model.output_cutoffs is not empty, otherwise a full softmax. With model.tied, the
// output layer uses the tables of `embedding`; with model.tied_projections, it uses the projections of `embedding`.
// `parameters` owns the tables and projections, and must outlive the output layer.
std::unique_ptr<OutputLayer> make_output(nn::ParameterList& parameters, const ModelOptions& options,
                                         const TokenEmbedding& embedding, int64_t vocabulary_size);

// Creates a full softmax (softmax_output.cpp); called by make_output().
std::unique_ptr<OutputLayer> make_softmax_output(nn::ParameterList& parameters, const ModelOptions& options,
                                                 const TokenEmbedding& embedding, int64_t vocabulary_size);
// Creates an adaptive softmax (adaptive_output.cpp); called by make_output().
std::unique_ptr<OutputLayer> make_adaptive_output(nn::ParameterList& parameters, const ModelOptions& options,
                                                  const TokenEmbedding& embedding, int64_t vocabulary_size);

}  // namespace mh::model
