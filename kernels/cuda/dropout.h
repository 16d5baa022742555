// Dropout on a GPU, with the random stream of dropout_params.h.
//
// Tiling: a block has 256 threads. A thread computes vectors of four consecutive elements in a grid-stride loop. For a
// vector it computes the four random words of a Philox counter, or of two counters if the vector is not aligned in the
// random stream, and holds four elements and four or eight words in registers. If the tensor consists of several runs
// of the stream (DropoutRange) whose size is not a multiple of 4, the thread computes the words of one counter for each
// element. There is no shared memory. The grid has one block for every 1024 elements, up to 65535 blocks: 512 blocks
// for a hidden state (512, 1024).
#pragma once

#include "ceil_div.h"
#include "cuda/grid.h"
#include "cuda/philox.h"
#include "cuda/vec4.h"

namespace mh::kernels {

// Applies dropout to x, whose elements have the indices `position` … `position` + 3 in the random stream. Their random
// words belong to one Philox counter, or to two.
MH_DEVICE void apply_dropout_vec4(const DropoutParams& params, uint64_t position, float (&x)[4]) {
  const PhiloxWords words = philox(params, position / 4);
  const auto word_offset = static_cast<unsigned>(position % 4);
  if (word_offset == 0) {
    MH_FOR (k, 4) x[k] = dropout_keeps(params, words.word[k]) ? x[k] * params.scale : 0.0f;
  } else {
    const PhiloxWords next_words = philox(params, position / 4 + 1);
    MH_FOR (k, 4) {
      const uint32_t word =
          word_offset + k < 4 ? word_at(words, word_offset + k) : word_at(next_words, word_offset + k - 4);
      x[k] = dropout_keeps(params, word) ? x[k] * params.scale : 0.0f;
    }
  }
}

// The kernel body of dropout(). Grid: any number of blocks.
template <class T>
struct DropoutElements {
  static constexpr int kThreads = 256;
  DropoutRange range;
  const T* x;
  T* y;
  int64_t count;

  // Returns the index in the random stream of element i.
  MH_DEVICE uint64_t position_of(int64_t i) const {
    if (i < range.run_size) return range.stream_offset + static_cast<uint64_t>(i);
    const int64_t run = i / range.run_size;
    return range.run_begin(run) + static_cast<uint64_t>(i - run * range.run_size);
  }

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    const int64_t stride = 4 * static_cast<int64_t>(thread.blocks_x()) * thread.threads();
    for (int64_t i = 4 * (static_cast<int64_t>(thread.block_x()) * thread.threads() + thread.index()); i < count;
         i += stride) {
      float values[4];
      load_vec4(thread, x, i, count, values);
      if (range.run_size >= count || range.run_size % 4 == 0) {
        apply_dropout_vec4(range.params, position_of(i), values);
      } else {
        MH_FOR (k, 4) {
          const uint64_t position = position_of(i + k);
          const uint32_t word = word_at(philox(range.params, position / 4), static_cast<unsigned>(position % 4));
          values[k] = dropout_keeps(range.params, word) ? values[k] * range.params.scale : 0.0f;
        }
      }
      store_vec4(thread, y, i, count, values);
    }
  }
};

// Launches the kernel of CudaApi::dropout. Returns null, or a description of the problem.
template <class T, class Launcher>
const char* dropout(const Launcher& launcher, const DropoutRange& range, const void* x, void* y, int64_t count) {
  using Body = DropoutElements<T>;
  const int64_t blocks = ceil_div(count, 4 * Body::kThreads);
  return launcher(Grid{static_cast<int>(blocks < 65535 ? blocks : 65535)}, Body::kThreads, 0,
                  Body{range, static_cast<const T*>(x), static_cast<T*>(y), count});
}

}  // namespace mh::kernels
