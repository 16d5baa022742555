// Dropout with probability p on CPUs and GPUs: element i of a random stream is dropped if the upper 24 bits of word
// i % 4 of Philox-4x32-10 at the counter (i / 4, site, update) are below p * 2^24. The backward pass recomputes the
// mask, so no mask is stored.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct DropoutParams {
  uint32_t key[2];     // Philox key of the random stream
  uint32_t update;     // number of the optimiser update, from 0
  uint32_t site;       // number of the layer or band, or 0; distinguishes tensors with the same key
  uint32_t threshold;  // p * 2^24, rounded up
  float scale;         // 1 / (1 - p)
  // On a GPU: address of the update number in GPU memory, which a CUDA graph reads at each launch; null: the kernels
  // read `update`.
  const uint32_t* update_ptr = nullptr;
};

// Dropout of a tensor whose elements are a range of a random stream.
struct DropoutRange {
  DropoutParams params;
  uint64_t stream_offset;  // index of the tensor's first element in the random stream
};

}  // namespace mh::kernels
