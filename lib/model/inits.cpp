// The distributions from which each initialisation scheme draws the initial values of embedding tables, projections and
// dense layers.
#include "model/inits.h"

#include <cmath>

namespace mh::model {

nn::Init embedding_init(const ModelOptions& o, int64_t width) {
  if (o.init == InitScheme::bert) return nn::Init::truncated_normal(0.02);
  if (o.init == InitScheme::transformer_xl) return nn::Init::normal(0.02);
  return nn::Init::normal(1 / std::sqrt(static_cast<double>(width)));
}

nn::Init projection_init(const ModelOptions& o) {
  if (o.init == InitScheme::bert) return nn::Init::truncated_normal(0.02);
  if (o.init == InitScheme::transformer_xl) return nn::Init::normal(0.01);
  return nn::Init::xavier_uniform();
}

nn::Init adaptive_output_init(const ModelOptions& o) {
  return o.init == InitScheme::fairseq ? nn::Init::xavier_uniform() : embedding_init(o, o.width);
}

}  // namespace mh::model
