// Creates the output layer of a model: a full or an adaptive softmax.
#include "model/output.h"

namespace mh::model {

std::unique_ptr<OutputLayer> make_output(nn::ParameterList& parameters, const ModelOptions& o,
                                         const TokenEmbedding& embedding, int64_t vocabulary_size) {
  return o.output_cutoffs.empty() ? make_softmax_output(parameters, o, embedding, vocabulary_size)
                                  : make_adaptive_output(parameters, o, embedding, vocabulary_size);
}

}  // namespace mh::model
