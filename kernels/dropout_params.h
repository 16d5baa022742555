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

// The elements of a random stream that decide which elements of a tensor (B, …) are dropped. The tensor is divided into
// runs of `run_size` elements, which are consecutive in the tensor and in the stream: run t of `runs_per_head` in head
// h of `num_heads` in batch row b begins at element stream_offset + b * batch_stride + h * head_stride + t * run_stride
// of the stream. If all elements of the tensor are consecutive in the stream, the tensor may be one run.
struct DropoutRange {
  DropoutParams params;
  uint64_t stream_offset;
  int64_t run_size;                               // elements
  int64_t runs_per_head = 1, num_heads = 1;       // number of runs of a head; number of heads of a batch row
  int64_t batch_stride, head_stride, run_stride;  // in elements of the stream

  // Returns the index in the stream of the first element of run number `run`. Runs are numbered in the order of the
  // tensor.
  constexpr uint64_t run_begin(int64_t run) const {
    const int64_t head = run / runs_per_head;
    return stream_offset + static_cast<uint64_t>(head / num_heads * batch_stride + head % num_heads * head_stride +
                                                 run % runs_per_head * run_stride);
  }
};

}  // namespace mh::kernels
