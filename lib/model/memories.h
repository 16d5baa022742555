// What a Transformer-XL keeps from one segment to the next: each layer's own inputs of earlier segments (Dai et al.
// 2019). A layer that a step skips leaves its memory as it is, which grows older ("Skip Cross-Head Transformer-XL",
// phase 1).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attention/layer.h"
#include "model/language_model.h"

namespace mh::io {
class Checkpoint;
}

namespace mh::model {

// Made by new_state() or new_memory() and handed to hidden() with every segment. A copy shares its tensors, which
// training replaces and never changes.
class Memories : public DecodingState {
 public:
  struct Layer {
    // The layer's earlier inputs (B, m, d), without their graph: what training needs. Undefined where there are none,
    // or where `cache` has taken their place: keys and values of them, which evaluation needs not make again.
    at::Tensor inputs;
    attention::Cache cache;
    // Where each of the m slots stands, counted from the first token of the first segment (negative: before it);
    // ascending. Skipped layers leave gaps.
    std::vector<int64_t> positions;
  };
  // `slots`: how many are kept; 0: none in training, all in decoding.
  Memories(size_t count, int64_t slots) : layers(count), capacity(slots) {}
  int64_t length() const override { return seen; }
  void reorder(const at::Tensor& rows) override;

  std::vector<Layer> layers;
  int64_t capacity;
  int64_t seen = 0;  // positions so far: the next segment's first
};

// Memories of training as tensors of a training state, and back; names as in mhc(5). `parts` are neighbouring rows of
// one batch (its micro-batches).
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
NamedTensors memory_tensors(const std::vector<Memories>& parts);
// The memories of a batch of `rows` rows in parts of `rows_per_part`, each shaped like `empty`, whose layers are of
// width `width`. Error(input) where the checkpoint's do not fit.
std::vector<Memories> load_memories(const io::Checkpoint& checkpoint, const Memories& empty, int64_t rows,
                                    int64_t rows_per_part, int64_t width, at::Device device);

}  // namespace mh::model
