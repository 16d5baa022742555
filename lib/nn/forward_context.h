// The place of a forward pass in training. Every stage receives it; dropout and stochastic stages draw from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace mh::nn {

// A request of a procedure to the stages of one method in a pass. The method derives a type of its own beside its
// stage, which looks for that type.
class Request {
 public:
  virtual ~Request() = default;
};

// The requests of a pass, at most one of each type.
class Requests {
 public:
  bool empty() const { return all_.empty(); }
  void add(std::shared_ptr<const Request> request) { all_.push_back(std::move(request)); }
  // The request of type T; null where the pass has none.
  template <class T>
  const T* find() const {
    for (const auto& request : all_)
      if (const auto* found = dynamic_cast<const T*>(request.get())) return found;
    return nullptr;
  }

 private:
  std::vector<std::shared_ptr<const Request>> all_;
};

struct ForwardContext {
  bool training = false;   // dropout and stochastic stages act
  uint64_t seed = 1;       // of the run; random streams are made from it and a stage's own name
  uint32_t update = 0;     // number of the update, from 0; micro-batches of one update differ by `row_offset`
  int64_t row_offset = 0;  // index of the batch's first row within the update's whole batch: rows draw by their place
                           // in the update, so splitting it into micro-batches or processes changes nothing
  const Requests* requests = nullptr;  // null: none
  // By layer: the whole layer is the identity in this step, and its memory does not change. Null: no layer.
  const std::vector<bool>* skipped = nullptr;

  // On a GPU, device memory that holds `update`, for kernels that are recorded once and launched for many updates
  // (nn/device_graph.h). Null: they take `update` itself.
  const uint32_t* update_at = nullptr;

  bool skips(size_t layer) const { return skipped != nullptr && (*skipped)[layer]; }
  // The request of type T; null where the pass has none.
  template <class T>
  const T* request() const {
    return requests != nullptr ? requests->find<T>() : nullptr;
  }
};

}  // namespace mh::nn
