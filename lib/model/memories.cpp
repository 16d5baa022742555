// Reorders the memories of Transformer-XL, and converts them to and from tensors of a training state.
#include "model/memories.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ceil_div.h"
#include "model/load.h"

namespace mh::model {

namespace {

constexpr const char* kNextPositionName = "memory.seen";

std::string tensor_name(size_t layer, const char* field) { return str("memory.layers.", layer, ".", field); }

}  // namespace

void Memories::reorder(const at::Tensor& old_rows) {
  for (Layer& layer : layers) {
    if (layer.inputs.defined()) layer.inputs = layer.inputs.index_select(0, old_rows.to(layer.inputs.device()));
    layer.cache.reorder(old_rows);
  }
}

Memories Memories::narrow_rows(int64_t first_row, int64_t num_rows) const {
  Memories memories(layers.size(), capacity);
  memories.next_position = next_position;
  for (size_t l = 0; l < layers.size(); ++l) {
    memories.layers[l].positions = layers[l].positions;
    if (layers[l].inputs.defined()) memories.layers[l].inputs = layers[l].inputs.narrow(0, first_row, num_rows);
  }
  return memories;
}

std::unique_ptr<Memories> LanguageModel::new_memory(int64_t) {
  throw Error(Exit::failed,
              "expected a model with a memory of earlier segments; found a model without memory; set "
              "model.backbone=transformer-xl");
}

NamedTensors memory_tensors(const std::vector<Memories>& memories) {
  NamedTensors tensors;
  if (memories.empty()) return tensors;
  // Stores the positions of the first micro-batch only, since all micro-batches of a batch have the same positions.
  const Memories& first_memory = memories.front();
  tensors.emplace_back(kNextPositionName, at::full({}, first_memory.next_position, at::kLong));
  for (size_t l = 0; l < first_memory.layers.size(); ++l) {
    tensors.emplace_back(tensor_name(l, "positions"), at::tensor(first_memory.layers[l].positions, at::kLong));
    if (!first_memory.layers[l].inputs.defined()) continue;
    std::vector<at::Tensor> inputs;
    inputs.reserve(memories.size());
    for (const Memories& memory : memories) inputs.push_back(memory.layers[l].inputs);
    tensors.emplace_back(tensor_name(l, "inputs"), nn::cat(inputs));
  }
  return tensors;
}

std::vector<Memories> load_memories(const io::Checkpoint& checkpoint, const Memories& empty_memories, int64_t num_rows,
                                    int64_t rows_per_micro_batch, int64_t width, at::Device device) {
  auto refuse = [&](const std::string& name, const std::string& expected, const std::string& found) {
    refuse_input(checkpoint.name() + ": " + name, expected, found,
                 "resume from an unmodified training state of this run");
  };
  std::vector<Memories> memories(static_cast<size_t>(ceil_div(num_rows, rows_per_micro_batch)), empty_memories);
  at::Tensor next_position = at::empty({}, at::kLong);
  load_tensor(checkpoint, kNextPositionName, next_position);
  for (Memories& memory : memories) memory.next_position = next_position.item<int64_t>();
  for (size_t l = 0; l < empty_memories.layers.size(); ++l) {
    const std::string name = tensor_name(l, "positions");
    const io::TensorInfo* info = checkpoint.find(name);
    const int64_t num_positions = info != nullptr && info->shape.size() == 1 ? info->shape[0] : 0;
    if (num_positions > empty_memories.capacity)
      refuse(name, str("at most model.transformer-xl.memory, ", count_of(empty_memories.capacity, "position")),
             str(num_positions));
    at::Tensor stored_positions = at::empty({num_positions}, at::kLong);
    load_tensor(checkpoint, name, stored_positions);
    const auto* p = stored_positions.const_data_ptr<int64_t>();
    const std::vector<int64_t> positions(p, p + num_positions);
    if (std::adjacent_find(p, p + num_positions, std::greater_equal<>()) != p + num_positions)
      refuse(name, "ascending positions", "positions that are not ascending");
    if (num_positions > 0 && positions.back() >= memories.front().next_position)
      refuse(name, str("positions below ", memories.front().next_position, ", the number of positions read so far"),
             str(positions.back()));
    at::Tensor inputs;
    if (num_positions > 0) {
      inputs = at::empty({num_rows, num_positions, width}, at::TensorOptions().device(device));
      load_tensor(checkpoint, tensor_name(l, "inputs"), inputs);
    }
    for (size_t i = 0; i < memories.size(); ++i) {
      const int64_t first_row = static_cast<int64_t>(i) * rows_per_micro_batch;
      memories[i].layers[l].positions = positions;
      if (num_positions > 0)
        memories[i].layers[l].inputs =
            inputs.narrow(0, first_row, std::min(rows_per_micro_batch, num_rows - first_row));
    }
  }
  return memories;
}

}  // namespace mh::model
