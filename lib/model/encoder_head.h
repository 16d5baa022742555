// The interface of an encoder's task heads (model.bert.head), which predict from its last hidden states. Each file in
// heads/ implements one.
#pragma once

#include <memory>

#include "base/registry.h"
#include "model/model_config.h"
#include "model/output.h"

namespace mh::model {

class EncoderHead {
 public:
  virtual ~EncoderHead() = default;
  // Returns whether the head scores the entries of the vocabulary; with model.tied, by the embedding.
  virtual bool scores_entries() const { return false; }
  virtual bool has_classes() const { return false; }        // accepts model.bert.classes and model.bert.labels
  virtual bool has_next_sentence() const { return false; }  // accepts model.bert.next_sentence
  // Creates the output layer. Its parameters are named pooler.* (the pooler) and head.* (all others). `embedding` must
  // outlive it.
  virtual std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& options,
                                            const TokenEmbedding& embedding, int64_t vocabulary) const = 0;
};
Registry<EncoderHead>& encoder_heads();

std::unique_ptr<EncoderHead> head_of(const BertOptions& options);

// Throws Error(usage) for options of [model.bert], or values of them, that the chosen head does not accept.
void check_head(const BertOptions& options);

}  // namespace mh::model
