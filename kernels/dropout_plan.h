// The rule of dropout on every device: element i of a stream is dropped when the upper 24 bits of word i % 4 of
// Philox-4x32-10 at counter (i / 4, site, update) are below p * 2^24. Nothing is stored for the backward pass.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct Dropout {
  uint32_t key[2];  // of the random stream
  uint32_t update;
  uint32_t site;
  uint32_t threshold;  // p * 2^24, rounded up
  float scale;         // 1 / (1 - p)
  // On a GPU, where a recorded graph of kernels finds the number of the update that it is launched for; null: `update`.
  const uint32_t* update_at = nullptr;
};

// Dropout of a tensor whose elements are a stretch of a stream.
struct DropoutFrom {
  Dropout how;
  uint64_t first;  // the stream's number of the tensor's first element
};

}  // namespace mh::kernels
