#include "train/checkpointer.h"

#include <ATen/Parallel.h>
#include <xxhash.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Maximum time for which the other processes wait until rank 0 has written a file.
constexpr std::chrono::hours kWriteTimeout{6};

}  // namespace

void Checkpointer::write(const std::string& path, const model::CheckpointTensors& tensors,
                         io::Metadata extra_metadata) const {
  if (objects_.group.is_main()) {
    extra_metadata.insert({{io::kFormatKey, "1"}, {io::kConfigKey, toml_}});
    extra_metadata.merge(text::metadata_of(tokenizers_));
    extra_metadata.insert(inherited_metadata_.begin(), inherited_metadata_.end());
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, tensors.views(), std::move(extra_metadata));
    sink->close();
  } else {
    // Sends this process's shard of each divided tensor each time that rank 0 produces the whole tensor.
    for (int i = 0; i < io::kNumProductions; ++i)
      for (const io::TensorView& view : tensors.views())
        if (view.produce) view.produce();
  }
  // The file of rank 0 is complete, and the other processes have nothing left to do.
  objects_.group.barrier(objects_.group.is_main() ? std::chrono::milliseconds{} : kWriteTimeout);
}

void Checkpointer::add_shard(model::CheckpointTensors& tensors, const TensorShard& shard,
                             const std::shared_ptr<at::Tensor>& buffer) const {
  tensors.add(shard.name, shard.shape, [this, shard, buffer] {
    gather_shards(objects_.group, objects_.optimizer.shards(), shard.parameter_index, shard.elements, kWriteTimeout,
                  *buffer);
    return buffer->const_data_ptr();
  });
}

void Checkpointer::add_model(model::CheckpointTensors& tensors, bool with_moments) const {
  const auto buffer = std::make_shared<at::Tensor>(at::empty({0}, at::kFloat));
  const std::vector<TensorShard> master_shards = objects_.optimizer.master_shards();
  auto next_shard = master_shards.begin();
  for (const nn::Parameter& p : objects_.model.parameters().all()) {
    if (p.has_whole_master()) tensors.add(p.name(), p.master());
    else add_shard(tensors, *next_shard++, buffer);
  }
  if (!with_moments) return;
  if (objects_.optimizer.is_sharded())
    for (const TensorShard& shard : objects_.optimizer.moment_shards()) add_shard(tensors, shard, buffer);
  else
    for (const auto& [label, tensor] : objects_.optimizer.moments()) tensors.add(label, tensor);
}

model::NamedTensors Checkpointer::gather_memories() const {
  model::NamedTensors tensors = model::memory_tensors(objects_.memories);
  if (objects_.group.is_single()) return tensors;
  // Names, types and shapes of the tensors with rows come from rank 0, since a process without rows has no memory. The
  // other tensors, of positions, are equal in all processes.
  nlohmann::ordered_json row_tensors = nlohmann::ordered_json::array();
  for (const auto& [label, tensor] : tensors)
    if (tensor.dim() == 3)
      row_tensors.push_back(nlohmann::ordered_json::array(
          {label, static_cast<int>(tensor.scalar_type()), tensor.size(1), tensor.size(2)}));
  row_tensors = nlohmann::ordered_json::parse(objects_.group.broadcast(row_tensors.dump()));
  const data::BatchRowRange rows = objects_.batches.own_rows(objects_.state.update);
  for (const auto& row_tensor : row_tensors) {
    const auto options = at::TensorOptions(objects_.model.parameters().device())
                             .dtype(static_cast<at::ScalarType>(row_tensor[1].get<int>()));
    const at::Tensor all_rows = at::zeros(
        {objects_.batches.rows_per_update(), row_tensor[2].get<int64_t>(), row_tensor[3].get<int64_t>()}, options);
    const auto label = row_tensor[0].get<std::string>();
    const auto own_tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == label; });
    if (own_tensor != tensors.end()) all_rows.narrow(0, rows.first_row, rows.num_rows).copy_(own_tensor->second);
    objects_.group.sum(all_rows);  // each process has its own rows, and zeros in all other rows
    if (own_tensor != tensors.end()) own_tensor->second = all_rows;
  }
  return tensors;
}

void Checkpointer::require_equal_states() const {
  if (objects_.group.is_single()) return;
  uint64_t hash = XXH3_64bits_withSeed(nullptr, 0, static_cast<uint64_t>(objects_.state.update));
  const auto add = [&](const at::Tensor& t) {
    const at::Tensor bytes = t.detach().to(at::kCPU).contiguous();
    hash = XXH3_64bits_withSeed(bytes.const_data_ptr(), bytes.nbytes(), hash);
  };
  for (const nn::Parameter& p : objects_.model.parameters().all()) add(p.has_whole_master() ? p.master() : p.value());
  if (!objects_.optimizer.is_sharded())
    for (const auto& [label, tensor] : objects_.optimizer.moments()) add(tensor);
  const std::vector<std::string> hashes = objects_.group.gather(hex64(hash));
  for (size_t rank = 1; rank < hashes.size(); ++rank)
    if (hashes[rank] != hashes[0])
      throw Error(Exit::failed,
                  Problem{str("update ", objects_.state.update), "equal weights and optimiser states in all processes",
                          str("differences between rank 0 and rank ", rank),
                          "start all processes from the same files, on processors of one model"});
}

void Checkpointer::save_weights(const std::string& path) const {
  model::CheckpointTensors tensors;
  add_model(tensors, false);
  write(path, tensors);
}

void Checkpointer::save_state(const std::string& path, const std::string& reason) const {
  require_equal_states();
  TrainState& state = objects_.state;
  state.last_lr = objects_.optimizer.last_lr;
  state.num_threads = at::get_num_threads();
  state.steps = objects_.optimizer.steps();
  state.has_memory = !objects_.memories.empty();
  for (const auto& entry : objects_.procedures.entries()) state.procedure_states[entry.name] = entry.plugin->state();
  model::CheckpointTensors tensors;
  add_model(tensors, true);
  for (const auto& [label, tensor] : gather_memories()) tensors.add(label, tensor);
  write(path, tensors, {{io::kTrainingKey, to_json(state)}});
  log_detail(str("saved at update ", state.update, ": ", reason));
}

void Checkpointer::load_state(const io::Checkpoint& checkpoint, int64_t width) const {
  model::LanguageModel& model = objects_.model;
  TrainState& state = objects_.state;
  model::load_parameters(checkpoint, model.parameters());
  for (TensorShard& shard : objects_.optimizer.moment_shards())
    model::load_elements(checkpoint, shard.name, shard.shape, shard.begin, shard.elements);
  state = parse_train_state(checkpoint.metadata_entry(io::kTrainingKey), checkpoint.name());
  objects_.optimizer.last_lr = state.last_lr;
  objects_.optimizer.set_steps(state.steps);
  if (state.has_memory && model.memory_length() == 0)
    refuse_input(checkpoint.name(), "no tensors of a memory, since model.transformer-xl.memory is 0",
                 "tensors of a memory", "resume from an unmodified training state of this run");
  if (state.has_memory) {
    const int64_t num_rows = objects_.batches.rows_per_update();
    const std::vector<model::Memories> memories = model::load_memories(
        checkpoint, *model.new_memory(model.memory_length()), num_rows, num_rows, width, model.parameters().device());
    objects_.memories.clear();
    for (const auto& micro_batch : objects_.batches.micro_batches(state.update))
      if (!micro_batch.is_filler)  // a filler has no streams whose memory continues
        objects_.memories.push_back(memories[0].narrow_rows(micro_batch.first_row, micro_batch.num_rows));
  }
  for (const auto& entry : objects_.procedures.entries())
    if (auto it = state.procedure_states.find(entry.name); it != state.procedure_states.end()) {
      require_sound_json(it->second, "the state of " + entry.name + " in last.safetensors",
                         "resume from an unmodified training state");
      entry.plugin->set_state(it->second);
    }
}

}  // namespace mh::train
