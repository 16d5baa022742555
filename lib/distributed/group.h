// The processes of a job that compute one result together, and collective operations between them, implemented with
// LibTorch's c10d: tensors in main memory and texts by Gloo, tensors on GPUs by NCCL, which only jobs that train on
// GPUs open (join.h). An operation on a GPU tensor follows the pending kernels of the current stream.
//
// Every process must call the same operations in the same order, with tensors of equal shapes and types. An operation
// throws Error(failed) if it does not complete within the timeout of the group, or if the connection to another process
// is lost; the error names the ranks that have ended or are stopped. Afterwards the group is unusable.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "nn/process_sum.h"

namespace mh::distributed {

struct Connections;  // connections.h

// An operation that has started.
class PendingOperation {
 public:
  struct State;
  PendingOperation() = default;  // an operation that is complete
  explicit PendingOperation(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Waits until the tensors of the operation have their results. Throws the errors of the operation.
  void wait();

 private:
  std::shared_ptr<State> state_;
};

class Group : public nn::ProcessSum {
 public:
  // Creates a group of one process, whose operations do not communicate and leave tensors unchanged; only all_gather()
  // writes to a tensor: it copies `own` to `all`.
  Group() = default;
  explicit Group(std::shared_ptr<const Connections> connections) : connections_(std::move(connections)) {}

  int rank() const;
  int size() const;
  bool is_single() const { return connections_ == nullptr; }
  // Returns whether this process writes the outputs and the log of the job.
  bool is_main() const { return rank() == 0; }

  // Starts sum(). The caller must not access the tensor before wait() has returned.
  PendingOperation start_sum(const at::Tensor& tensor) const;
  // Replaces each element of a contiguous tensor by its sum over all processes. The result has the same bits in all
  // processes; the order of the additions depends only on the number of processes and on the shape, and on GPUs also on
  // the connections between them.
  void sum(const at::Tensor& tensor) const override { start_sum(tensor).wait(); }
  // Copies the tensor `own` of each process to all processes: part r of `all`, which has `size()` parts of equal size,
  // is the tensor of rank r. Both tensors are contiguous and one-dimensional, and have elements of one type. During the
  // call, Gloo holds a second tensor of the size of `all`.
  void all_gather(const at::Tensor& own, const at::Tensor& all) const;
  // Sends a contiguous tensor to another rank, which calls receive() with a tensor of the same size and type, and waits
  // until that rank has received it. The group must have several processes.
  void send(const at::Tensor& tensor, int rank) const;
  // Receives a tensor that another rank sends, in place. See send().
  void receive(const at::Tensor& tensor, int rank) const;
  // Copies the elements of a contiguous tensor from rank 0 to all other processes, in place.
  void broadcast(const at::Tensor& tensor) const;
  // Returns the text of rank 0, which may contain any bytes.
  std::string broadcast(const std::string& text) const;
  // Returns the texts of all processes, in the order of their ranks. Texts may differ in length. `timeout` (zero: the
  // timeout of the group): see barrier().
  std::vector<std::string> gather(const std::string& text, std::chrono::milliseconds timeout = {}) const;
  // Waits until every process has called barrier(), at most for `timeout` (zero: the timeout of the group). Callers
  // pass a longer timeout if other processes work meanwhile, for example when rank 0 saves a checkpoint. The wait then
  // still ends within the timeout of the group if another process is stopped or disconnected, which its heartbeats
  // show.
  void barrier(std::chrono::milliseconds timeout = {}) const;

 private:
  std::shared_ptr<const Connections> connections_;  // null: one process
};

}  // namespace mh::distributed
