// Initialisers of embedding tables, of the matrices of adaptive input and adaptive softmax, and of the dense layers of
// task heads, for each initialisation scheme (model.init).
#pragma once

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

// Returns the initialiser of an embedding table of `width` columns. fairseq: normal with standard deviation 1/√width.
// transformer-xl: normal with standard deviation 0.02. bert: normal with standard deviation 0.02, truncated
// at 2 standard deviations.
nn::Init embedding_init(const ModelOptions& options, int64_t width);

// Returns the initialiser of a projection between the width of a band and the width of the model, and of dense layers
// in task heads. fairseq: Xavier-uniform. transformer-xl: normal with standard deviation 0.01. bert: normal with
// standard deviation 0.02, truncated at 2 standard deviations.
nn::Init projection_init(const ModelOptions& options);

// Returns the initialiser of the untied tables and of the class matrix of an adaptive softmax. fairseq: Xavier-uniform.
// Other schemes: embedding_init().
nn::Init adaptive_output_init(const ModelOptions& options);

}  // namespace mh::model
