// Exchanges the elements of tensors between the processes of a job that each hold or update only their own shard
// (optimizer_shards.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <string>
#include <vector>

#include "distributed/group.h"
#include "train/optimizer_shards.h"

namespace mh::train {

// A tensor of which this process may hold only the elements of its shard.
struct TensorShard {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  size_t parameter_index = 0;  // index of the tensor's parameter in OptimizerShards
  int64_t begin = 0;           // index of the first own element in the whole tensor, flattened
  at::Tensor elements;         // (number of own elements), fp32; shares memory with its owner
};

// All-gathers elements that each process has updated in its own shard.
class ShardExchange {
 public:
  // A tensor with the elements of a parameter, such as its master or its bf16 copy. The tensor is contiguous and in
  // main memory.
  struct Values {
    size_t parameter_index = 0;
    at::Tensor tensor;
  };

  // `max_buffer_bytes`: size limit of the buffers for the pieces of a step, which include Gloo's copy of the received
  // pieces. If the limit has no room for pieces of one byte, a piece is one byte.
  ShardExchange(distributed::Group group, int64_t max_buffer_bytes)
      : group_(std::move(group)), max_buffer_bytes_(max_buffer_bytes) {}

  // Copies the elements of each process's own shard to the tensors of all other processes. All processes pass the
  // same parameters, in the same order, with equal element types. Step k gathers piece k of every shard, and
  // copies it to the tensors. The buffers are freed at the end, so that the passes of the next update reuse their
  // memory. Throws the errors of the group.
  void all_gather(const OptimizerShards& shards, const std::vector<Values>& values) const;

 private:
  const distributed::Group group_;
  const int64_t max_buffer_bytes_;
};

// Assembles a whole tensor in rank 0: each rank sends its own elements `own_elements` to rank 0, which copies them to
// `whole`. `whole` is resized to the number of elements of the parameter in rank 0, and unused in other ranks.
// `wait_timeout`: maximum time for which a rank waits until rank 0 calls this function; the wait ends within the
// timeout of the group if rank 0 is stopped or disconnected. Throws the errors of the group.
void gather_shards(const distributed::Group& group, const OptimizerShards& shards, size_t parameter_index,
                   const at::Tensor& own_elements, std::chrono::milliseconds wait_timeout, at::Tensor& whole);

}  // namespace mh::train
