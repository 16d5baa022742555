// The position of a forward pass in training: seed, update and rows. Every stage receives it; dropout and stochastic
// stages derive their random numbers from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace mh::nn {

// A request of a training procedure to the stages of one method, for one pass. The method derives its own type from
// this class, and its stage looks for that type.
class Request {
 public:
  virtual ~Request() = default;
};

// The requests of a pass, at most one of each type.
class Requests {
 public:
  bool empty() const { return all_.empty(); }
  void add(std::shared_ptr<const Request> request) { all_.push_back(std::move(request)); }
  // Returns the request of type T; null if the pass has none.
  template <class T>
  const T* find() const {
    for (const auto& request : all_)
      if (const auto* found = dynamic_cast<const T*>(request.get())) return found;
    return nullptr;
  }

 private:
  std::vector<std::shared_ptr<const Request>> all_;
};

// The arguments of a forward pass that are not tensors.
struct ForwardContext {
  bool training = false;   // dropout and stochastic stages are active
  uint64_t seed = 1;       // seed of the run; random streams are derived from it and the name of a stage
  uint32_t update = 0;     // number of the update, from 0; micro-batches of one update differ by `row_offset`
  int64_t row_offset = 0;  // index of the batch's first row within the whole batch of the update. Random numbers depend
                           // on this index of their row, so splitting a batch into micro-batches or processes does not
                           // change them
  const Requests* requests = nullptr;  // null: none
  // Per layer: whether the whole layer is the identity in this step and leaves its memory unchanged. Null: no layer is
  // skipped.
  const std::vector<bool>* skipped = nullptr;

  // On a GPU, device memory that holds `update`, for kernels that are captured once and replayed for many updates
  // (nn/device_graph.h). Null: kernels read `update` itself.
  const uint32_t* update_at = nullptr;

  bool skips(size_t layer) const { return skipped != nullptr && (*skipped)[layer]; }
  // Returns the request of type T; null if the pass has none.
  template <class T>
  const T* request() const {
    return requests != nullptr ? requests->find<T>() : nullptr;
  }
};

}  // namespace mh::nn
