// Writes the checkpoints and training states of a run, and restores a training state.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/group.h"
#include "io/checkpoint.h"
#include "model/load.h"
#include "model/memories.h"
#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/procedure.h"
#include "train/train_state.h"

namespace mh::train {

// References to the objects that save_state() and load_state() read or change.
struct TrainingObjects {
  model::LanguageModel& model;
  Optimizer& optimizer;
  const Procedures& procedures;
  std::vector<model::Memories>& memories;  // Transformer-XL memories, one for each micro-batch; empty: none
  TrainState& state;
  Batches& batches;
  const distributed::Group& group;
};

// A checkpoint or training state has the same bytes whatever the number of processes and train.shard: of a tensor that
// the processes divide, rank 0 receives the elements of the other ranks while it writes the tensor.
//
// All processes of a job call the functions of a Checkpointer together: rank 0 writes the files, and the other ranks
// wait until the files are written.
class Checkpointer {
 public:
  // `toml`: the resolved configuration. `toml`, `tokenizers` and the objects that `objects` refers to must outlive the
  // checkpointer; `objects` itself is copied. `inherited_metadata`: further metadata of every file
  // (derived_metadata.h).
  Checkpointer(const std::string& toml, const text::Tokenizers& tokenizers, TrainingObjects objects,
               io::Metadata inherited_metadata = {})
      : toml_(toml), tokenizers_(tokenizers), objects_(objects), inherited_metadata_(std::move(inherited_metadata)) {}

  // Writes a checkpoint of the parameters without training state.
  void save_weights(const std::string& path) const;
  // Writes a training state: parameters, optimiser state, memories and TrainState. `reason`: why the state is saved,
  // for the log.
  void save_state(const std::string& path, const std::string& reason) const;
  // Restores everything that save_state() wrote, except tensors that only other processes need: the memories of the
  // rows that they compute, and with train.shard=optimizer the elements of moments that they hold. `width`: width of
  // the model, d. Throws Error(input) for a state that is damaged or does not fit the model.
  void load_state(const io::Checkpoint& checkpoint, int64_t width) const;

  // Throws Error(failed) if the weights, optimiser states or numbers of updates of the processes differ; of tensors
  // that the processes divide, only the bf16 copies of the weights are compared. A difference happens if the processes
  // started from different files, or if their processors round differently.
  void require_equal_states() const;

 private:
  // Adds a tensor of which this process holds only its own shard. The tensors share `buffer`, into which rank 0
  // receives one tensor at a time.
  void add_shard(model::CheckpointTensors& tensors, const TensorShard& shard,
                 const std::shared_ptr<at::Tensor>& buffer) const;
  // Adds the parameters, and the moments if `with_moments` is set.
  void add_model(model::CheckpointTensors& tensors, bool with_moments) const;
  void write(const std::string& path, const model::CheckpointTensors& tensors, io::Metadata extra_metadata = {}) const;
  // Returns the memories of all rows of an update, as tensors of a training state. The result is complete in every
  // process that has rows, rank 0 always included; a process without rows returns no tensors.
  model::NamedTensors gather_memories() const;
  const std::string& toml_;
  const text::Tokenizers& tokenizers_;
  const TrainingObjects objects_;
  const io::Metadata inherited_metadata_;
};

}  // namespace mh::train
