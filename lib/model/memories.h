// The memory of a Transformer-XL: the inputs of each layer in earlier segments (Dai et al. 2019). A step that skips a
// layer leaves the memory of this layer unchanged, so that it holds older positions ("Skip Cross-Head Transformer-XL",
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

// Created by new_state() or new_memory() and passed to hidden() with every segment. Copies share tensors, which is
// safe: training replaces them and never writes to them.
class Memories : public DecodingState {
 public:
  struct Layer {
    // Earlier inputs of the layer (B, m, d), detached, for training. Undefined if m = 0, or if `cache` is used.
    at::Tensor inputs;
    // Keys and values of the earlier inputs. Evaluation keeps them instead of `inputs`, so as not to compute them
    // again.
    attention::Cache cache;
    // (m) ascending position of each slot, relative to the first token of the first segment (negative: before it). Gaps
    // come from skipped steps.
    std::vector<int64_t> positions;
  };
  // `slots`: maximum number of positions per layer; 0: none in training, unlimited in decoding.
  Memories(size_t count, int64_t slots) : layers(count), capacity(slots) {}
  int64_t length() const override { return seen; }
  void reorder(const at::Tensor& rows) override;

  std::vector<Layer> layers;
  int64_t capacity;
  int64_t seen = 0;  // number of positions read so far, which is the first position of the next segment
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// Returns the memories of training as tensors of a training state, with the names of mh-checkpoint(5). `parts`:
// memories of the micro-batches, which are consecutive rows of one batch.
NamedTensors memory_tensors(const std::vector<Memories>& parts);
// Loads the memories of a batch of `rows` rows, split into micro-batches of `rows_per_micro_batch` rows. `empty`: a
// memory with the number of layers and the capacity of the model; `width`: d. Throws Error(input) if the memories of
// the checkpoint do not fit.
std::vector<Memories> load_memories(const io::Checkpoint& checkpoint, const Memories& empty, int64_t rows,
                                    int64_t rows_per_micro_batch, int64_t width, at::Device device);

}  // namespace mh::model
