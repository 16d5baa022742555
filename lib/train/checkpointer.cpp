#include "train/checkpointer.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/log.h"

namespace mh::train {

void Checkpointer::write(const std::string& path, const model::CheckpointTensors& tensors, io::Metadata more) const {
  more.insert({{io::kFormatKey, "1"}, {io::kConfigKey, toml_}});
  more.merge(text::entries_of(tokenizers_));
  auto sink = open_sink(path);
  io::write_checkpoint(*sink, tensors.all(), std::move(more));
  sink->close();
}

void Checkpointer::save_weights(const std::string& path) const {
  model::CheckpointTensors views;
  views.add(parts_.model.parameters());
  write(path, views);
}

void Checkpointer::save_state(const std::string& path, const std::string& reason) const {
  TrainState& state = parts_.state;
  state.last_lr = parts_.optimizer.last_lr;
  state.threads = at::get_num_threads();
  state.steps = parts_.optimizer.steps();
  state.memory = !parts_.memories.empty();
  for (const auto& entry : parts_.procedures.entries()) state.procedures[entry.name] = entry.plugin->state();
  model::CheckpointTensors views;
  views.add(parts_.model.parameters());
  for (const auto& [label, tensor] : parts_.optimizer.state()) views.add(label, tensor);
  for (const auto& [label, tensor] : model::memory_tensors(parts_.memories)) views.add(label, tensor);
  write(path, views, {{io::kTrainingKey, to_json(state)}});
  log_detail(str("saved at update ", state.update, ": ", reason));
}

void Checkpointer::load_state(const io::Checkpoint& checkpoint, const Batches& batches, int64_t width) const {
  model::LanguageModel& model = parts_.model;
  TrainState& state = parts_.state;
  model::load_parameters(checkpoint, model.parameters());
  for (auto& [name, tensor] : parts_.optimizer.state()) model::load_tensor(checkpoint, name, tensor);
  state = parse_train_state(checkpoint.entry(io::kTrainingKey), checkpoint.name());
  parts_.optimizer.last_lr = state.last_lr;
  parts_.optimizer.set_steps(state.steps);
  if (state.memory && model.memory() == 0)
    throw Error(Exit::input, Problem{checkpoint.name(), "no Transformer-XL memory, since the model has none",
                                     "tensors of a memory", ""});
  if (state.memory)
    parts_.memories = model::load_memories(checkpoint, *model.new_memory(model.memory()), batches.rows_per_update(),
                                           batches.rows_per_micro_batch(), width, model.parameters().device());
  for (const auto& entry : parts_.procedures.entries())
    if (auto it = state.procedures.find(entry.name); it != state.procedures.end()) entry.plugin->set_state(it->second);
}

}  // namespace mh::train
