// Where in training a forward pass stands. Given to every stage; dropout and stochastic stages draw from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mh::nn {

struct ForwardContext {
  bool training = false;   // dropout and stochastic stages act
  uint64_t seed = 1;       // of the run; random streams are made from it and a stage's own name
  uint32_t update = 0;     // number of the update, from 0; micro-batches of one update differ by `row_offset`
  int64_t row_offset = 0;  // index of the batch's first row within the update's whole batch: rows draw by their place
                           // in the update, so splitting it into micro-batches or processes changes nothing
  bool sample_experts = false;  // a mixture of experts draws one expert and leaves its gates as they are (F step)
  // By layer: the whole layer is the identity in this step, and its memory stays as it is. Null: no layer.
  const std::vector<bool>* skipped = nullptr;

  // On a GPU, device memory that holds `update`, for kernels that are recorded once and launched for many updates
  // (nn/device_graph.h). Null: they take `update` as it is.
  const uint32_t* update_at = nullptr;

  bool skips(size_t layer) const { return skipped != nullptr && (*skipped)[layer]; }
};

}  // namespace mh::nn
