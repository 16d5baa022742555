// Reorders the memories of Transformer-XL, and converts them to and from tensors of a training state.
#include "model/memories.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/load.h"

namespace mh::model {

namespace {

constexpr const char* kSeen = "memory.seen";

std::string name_of(size_t layer, const char* what) { return str("memory.layers.", layer, ".", what); }

}  // namespace

void Memories::reorder(const at::Tensor& rows) {
  for (Layer& layer : layers) {
    if (layer.inputs.defined()) layer.inputs = layer.inputs.index_select(0, rows.to(layer.inputs.device()));
    layer.cache.reorder(rows);
  }
}

std::unique_ptr<Memories> LanguageModel::new_memory(int64_t) {
  throw Error(Exit::failed, "expected a model with a memory of earlier segments; found a model without memory");
}

NamedTensors memory_tensors(const std::vector<Memories>& parts) {
  NamedTensors all;
  if (parts.empty()) return all;
  // All micro-batches of a batch have the same positions, so the positions of the first micro-batch are stored.
  const Memories& any = parts.front();
  all.emplace_back(kSeen, at::full({}, any.seen, at::kLong));
  for (size_t l = 0; l < any.layers.size(); ++l) {
    all.emplace_back(name_of(l, "positions"), at::tensor(any.layers[l].positions, at::kLong));
    if (!any.layers[l].inputs.defined()) continue;
    std::vector<at::Tensor> rows;
    rows.reserve(parts.size());
    for (const Memories& part : parts) rows.push_back(part.layers[l].inputs);
    all.emplace_back(name_of(l, "inputs"), at::cat(rows));
  }
  return all;
}

std::vector<Memories> load_memories(const io::Checkpoint& checkpoint, const Memories& empty, int64_t rows,
                                    int64_t rows_per_micro_batch, int64_t width, at::Device device) {
  auto refuse = [&](const std::string& name, const std::string& expected, const std::string& found) {
    throw Error(Exit::input, Problem{checkpoint.name() + ": " + name, expected, found,
                                     "resume from a training state of the same run"});
  };
  std::vector<Memories> parts(static_cast<size_t>((rows + rows_per_micro_batch - 1) / rows_per_micro_batch), empty);
  at::Tensor seen = at::empty({}, at::kLong);
  load_tensor(checkpoint, kSeen, seen);
  for (Memories& part : parts) part.seen = seen.item<int64_t>();
  for (size_t l = 0; l < empty.layers.size(); ++l) {
    const std::string name = name_of(l, "positions");
    const io::TensorInfo* info = checkpoint.find(name);
    const int64_t slots = info != nullptr && info->shape.size() == 1 ? info->shape[0] : 0;
    if (slots > empty.capacity)
      refuse(name, str("at most model.transformer-xl.memory, ", empty.capacity, " positions"), str(slots));
    at::Tensor stored = at::empty({slots}, at::kLong);
    load_tensor(checkpoint, name, stored);
    const auto* p = stored.const_data_ptr<int64_t>();
    const std::vector<int64_t> positions(p, p + slots);
    if (std::adjacent_find(p, p + slots, std::greater_equal<>()) != p + slots)
      refuse(name, "ascending positions", "positions that are not ascending");
    if (slots > 0 && positions.back() >= parts.front().seen)
      refuse(name, str("positions below ", parts.front().seen, ", the number of positions read so far"),
             str(positions.back()));
    at::Tensor inputs;
    if (slots > 0) {
      inputs = at::empty({rows, slots, width}, at::TensorOptions().device(device));
      load_tensor(checkpoint, name_of(l, "inputs"), inputs);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * rows_per_micro_batch;
      parts[i].layers[l].positions = positions;
      if (slots > 0) parts[i].layers[l].inputs = inputs.narrow(0, first, std::min(rows_per_micro_batch, rows - first));
    }
  }
  return parts;
}

}  // namespace mh::model
