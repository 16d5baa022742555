// Transformer-XL (Dai et al. 2019): a decoder whose layers attend to their own inputs of earlier segments as well, and
// Skip-Retain training ("Skip Cross-Head Transformer-XL", phase 1): at each update a layer is skipped with a
// probability of its own; it is the identity then, and its memory stays as it is and grows older.
#pragma once

#include <vector>

#include "attention/layer.h"
#include "model/language_model.h"
#include "model/model_config.h"

namespace mh::model {

// What is kept from one segment to the next. Made by new_state() and handed to hidden() with every segment.
class Memories : public DecodingState {
 public:
  struct Layer {
    // The layer's earlier inputs (B, m, d), without their graph: what training needs. Undefined where there are none,
    // or where `cache` has taken their place: keys and values of them, which evaluation needs not make again.
    at::Tensor inputs;
    attention::Cache cache;
    // Where each of the m slots stands, counted from the first token of the first segment; ascending. Skipped layers
    // leave gaps.
    std::vector<int64_t> positions;
  };
  explicit Memories(size_t count) : layers(count) {}
  int64_t length() const override { return seen; }
  void reorder(const at::Tensor& rows) override;

  std::vector<Layer> layers;
  int64_t seen = 0;  // positions so far: the next segment's first
};

// Probability, per update, that training skips layer `layer` (from 0) of options.layers.
double skip_probability(const ModelOptions& options, int64_t layer);

}  // namespace mh::model
