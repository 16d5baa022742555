// The memory of a Transformer-XL: the inputs of each layer in earlier segments (Dai et al. 2019). A forward pass that
// skips a layer leaves the layer's memory unchanged, so that this memory contains older positions than the memories of
// other layers ("Skip Cross-Head Transformer-XL", phase 1).
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

// The memories of all layers. Created by LanguageModel::new_state() or new_memory() and passed to hidden() with every
// segment. Copies of a Memories object may share tensors, since training replaces the tensors and never writes to them.
class Memories : public DecodingState {
 public:
  struct Layer {
    // (B, m, d): inputs of the layer at m earlier positions, without gradient. Undefined if m = 0, or if `cache` is
    // used instead.
    at::Tensor inputs;
    // Keys and values of the m earlier positions. If gradients are disabled and the layer supports incremental
    // decoding, evaluation stores keys and values instead of `inputs`, so that later segments do not recompute them.
    attention::Cache cache;
    // (m): the earlier positions, ascending, counted from the first token of the first segment; negative for the zeros
    // of an initial memory (initial_memory = "zeros"). Forward passes that skip the layer leave gaps.
    std::vector<int64_t> positions;
  };
  // `max_positions`: value of `capacity`.
  Memories(size_t num_layers, int64_t max_positions) : layers(num_layers), capacity(max_positions) {}
  int64_t length() const override { return next_position; }
  void reorder(const at::Tensor& old_rows) override;
  // Returns the memories of the batch rows [first_row, first_row + num_rows), without caches.
  Memories narrow_rows(int64_t first_row, int64_t num_rows) const;

  std::vector<Layer> layers;
  int64_t capacity;  // maximum number of positions per layer; 0: no positions in training, otherwise unlimited
  // First position of the next segment, which is the number of positions in all segments so far.
  int64_t next_position = 0;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// Converts the memories of a training batch to tensors of a training state, named as in mh-checkpoint(5). `memories`:
// memories of the micro-batches, which are consecutive rows of the batch.
NamedTensors memory_tensors(const std::vector<Memories>& memories);
// Loads the memories of a training batch of `num_rows` rows and returns one Memories object per micro-batch of
// `rows_per_micro_batch` rows. `empty_memories`: an empty memory of the model, with its number of layers and capacity;
// `width`: model width d. Throws Error(input) if the memories in the checkpoint do not fit the model or the batch.
std::vector<Memories> load_memories(const io::Checkpoint& checkpoint, const Memories& empty_memories, int64_t num_rows,
                                    int64_t rows_per_micro_batch, int64_t width, at::Device device);

}  // namespace mh::model
