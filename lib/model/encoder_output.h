// The heads of an encoder (model.bert.head), by Devlin et al. 2019: the entries at masked places and whether a sentence
// follows another, the class of a text, a number, or where an answer begins and ends.
//
// With h_t the last hidden state at place t, and the pooler p = tanh(W h_0 + b):
//   words    scores of entries E norm(activation(W h_t + b)) + b, E the embedding where model.tied; with
//            model.bert.next_sentence scores of its two classes W p + b
//   classes  scores W dropout(p) + b
//   number   W dropout(p) + b, one number
//   span     (begin, end) scores W h_t + b
#pragma once

#include <memory>

#include "model/output.h"

namespace mh::model {

// The pooler is of the parameters pooler.*, the rest of head.*. `embedding` must outlive it.
std::unique_ptr<OutputLayer> encoder_output(nn::ParameterList& parameters, const ModelOptions& options,
                                            const TokenEmbedding& embedding, int64_t vocabulary);

}  // namespace mh::model
