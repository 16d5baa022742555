// Initialisers of embedding tables and of the matrices of adaptive embedding and softmax, by scheme (model.init).
#pragma once

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

// Returns the initialiser of an embedding table of this width, by mean and standard deviation: fairseq N(0, 1/√width);
// transformer-xl N(0, .02); bert N(0, .02), truncated at 2 standard deviations.
nn::Init embedding_init(const ModelOptions& options, int64_t width);

// Returns the initialiser of a projection between the width of a band and the width of the model: fairseq
// Xavier-uniform; transformer-xl N(0, .01); bert N(0, .02), truncated at 2 standard deviations, like all its matrices.
nn::Init projection_init(const ModelOptions& options);

// Returns the initialiser of the untied tables and of the class matrix of an adaptive softmax: fairseq Xavier-uniform;
// other schemes as embedding_init().
nn::Init adaptive_output_init(const ModelOptions& options);

}  // namespace mh::model
