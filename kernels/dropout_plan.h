// The rule of dropout on every device: element i of a stream is dropped if the upper 24 bits of word i % 4 of
// Philox-4x32-10 at counter (i / 4, site, update) are below p * 2^24. Nothing is saved for the backward pass.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct Dropout {
  uint32_t key[2];  // key of the random stream
  uint32_t update;
  uint32_t site;
  uint32_t threshold;  // p * 2^24, rounded up
  float scale;         // 1 / (1 - p)
  // On a GPU: device address of the update's number, which a CUDA graph reads at each launch; null: `update`.
  const uint32_t* update_at = nullptr;
};

// Dropout of a tensor whose elements are a range of a stream.
struct DropoutFrom {
  Dropout how;
  uint64_t first;  // element of the stream for the tensor's first element
};

}  // namespace mh::kernels
