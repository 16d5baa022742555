// The context of a forward pass, which every stage receives. Dropout and stochastic stages derive their random numbers
// from its seed, its update number and its row offset. The context also contains the requests of training procedures,
// the processes of the job, and the settings of recomputation and of CUDA graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "nn/process_sum.h"

namespace mh::nn {

// A request from a training procedure, for one forward pass, to the attention stages of one method or to a backbone.
// Example: model::SkipLayersRequest, a request to skip layers. The method or backbone derives its own type from
// Request, and finds the request by that type (Requests::find).
class Request {
 public:
  virtual ~Request() = default;
};

// The requests for one forward pass, at most one of each type.
class Requests {
 public:
  bool empty() const { return requests_.empty(); }
  void add(std::shared_ptr<const Request> request) { requests_.push_back(std::move(request)); }
  // Returns the request of type T; null if there is none.
  template <class T>
  const T* find() const {
    for (const auto& request : requests_)
      if (const auto* typed_request = dynamic_cast<const T*>(request.get())) return typed_request;
    return nullptr;
  }

 private:
  std::vector<std::shared_ptr<const Request>> requests_;
};

// How dropout computes the index of an element of a tensor (B, …) in its random stream.
enum class DropoutIndex : uint8_t {
  // The index consists of bit fields: the row in the full batch of the update, followed by the element t d + c of the
  // row in a tensor (B, T, d), or by head, query and key in a tensor (B, h, Tq, Tk). The lengths T, Tq and Tk to which
  // the rows of a micro-batch are padded do not change the index.
  position,
  // Element `offset` of a row has the index row * x[0].numel() + offset, where `row` is the index of the row in the
  // full batch of the update. This is the index in the padded tensor of the full batch, if all micro-batches of the
  // update are padded to the same lengths.
  padded,
};

// The arguments of a forward pass that are not tensors.
struct ForwardContext {
  bool training = false;  // whether dropout and stochastic stages are active
  uint64_t seed = 1;  // random seed of the training run; the seed and the name of a random stream determine the stream
  uint32_t update = 0;     // number of the update, from 0; all micro-batches of an update have the same number
  int64_t row_offset = 0;  // index of the micro-batch's first row in the full batch of the update. The random numbers
                           // of a row depend on its index in the full batch, so splitting a batch into micro-batches or
                           // across processes does not change them
  DropoutIndex dropout_index = DropoutIndex::position;
  const Requests* requests = nullptr;  // null: no requests

  // `processes`, `counts_rows` and `is_recomputation` describe the pass to every stage with batch statistics, that is,
  // a result that depends on several rows of the batch, or a running mean over batches, such as a batch norm. They are
  // properties of the job and of the pass, which the training loop sets for each model, and not requests of a
  // procedure: without them a stage would have other statistics with several processes or with recomputation.

  // The processes of the job; null: one process. Stages with batch statistics sum over the rows of all processes, so
  // all processes must run the same number of micro-batches in an update.
  const ProcessSum* processes = nullptr;
  // Whether the rows count in batch statistics. False in a micro-batch without targets, which a process runs while
  // other processes compute their rows.
  bool counts_rows = true;

  // Whether each layer keeps only its input and computes its activations again in the backward pass (nn/recompute.h).
  // Requires a forward pass of training without observer and without interceptors.
  bool recomputes_layers = false;
  // Whether the pass repeats a forward pass of the same layer for its backward pass. Running statistics, which the
  // first pass has updated, do not change again.
  bool is_recomputation = false;

  // GPU memory that holds the number of the update, for kernels that are captured once and replayed for many updates
  // (nn/device_graph.h). Null: kernels use `update`.
  const uint32_t* update_ptr = nullptr;

  // Returns the request of type T; null if there is none.
  template <class T>
  const T* request() const {
    return requests != nullptr ? requests->find<T>() : nullptr;
  }
};

}  // namespace mh::nn
