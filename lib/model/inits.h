// First values of tables and of the matrices of adaptive layers, by initialisation scheme (model.init).
#pragma once

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

// An embedding table of this width: fairseq N(0, 1/√width); transformer-xl N(0, .02); bert the same, cut at 2
// deviations.
nn::Init embedding_init(const ModelOptions& options, int64_t width);

// Between a band's width and the model's: fairseq Xavier-uniform; transformer-xl N(0, .01); bert as all its matrices.
nn::Init projection_init(const ModelOptions& options);

// Tables of an adaptive softmax's own, and its scores of classes: fairseq Xavier-uniform; the others as an embedding.
nn::Init adaptive_output_init(const ModelOptions& options);

}  // namespace mh::model
