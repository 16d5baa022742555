#include "model/inits.h"

#include <cmath>

namespace mh::model {

Init embedding_init(const ModelOptions& o, int64_t width) {
  if (o.init == Scheme::bert) return Init::truncated_normal(0.02);
  if (o.init == Scheme::transformer_xl) return Init::normal(0.02);
  return Init::normal(1 / std::sqrt(static_cast<double>(width)));
}

Init projection_init(const ModelOptions& o) {
  if (o.init == Scheme::bert) return Init::truncated_normal(0.02);
  if (o.init == Scheme::transformer_xl) return Init::normal(0.01);
  return Init::xavier_uniform();
}

Init adaptive_output_init(const ModelOptions& o) {
  return o.init == Scheme::fairseq ? Init::xavier_uniform() : embedding_init(o, o.width);
}

}  // namespace mh::model
