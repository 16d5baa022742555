// The heads of an encoder (model.bert.head): what it predicts from its last hidden states, a file each in heads/.
#pragma once

#include <memory>

#include "base/registry.h"
#include "model/model_config.h"
#include "model/output.h"

namespace mh::model {

class EncoderHead {
 public:
  virtual ~EncoderHead() = default;
  // Whether it scores the vocabulary's entries, by the embedding where model.tied.
  virtual bool scores_entries() const { return false; }
  virtual bool has_classes() const { return false; }        // takes model.bert.classes and labels
  virtual bool has_next_sentence() const { return false; }  // takes model.bert.next_sentence
  // The pooler has the parameters pooler.*, all others are head.*. `embedding` must outlive the layer.
  virtual std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& options,
                                            const TokenEmbedding& embedding, int64_t vocabulary) const = 0;
};
Registry<EncoderHead>& encoder_heads();

std::unique_ptr<EncoderHead> head_of(const BertOptions& options);

// Throws Error(usage) for keys of [model.bert] that its head does not have, or has otherwise.
void check_head(const BertOptions& options);

}  // namespace mh::model
