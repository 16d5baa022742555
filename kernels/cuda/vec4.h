// Access to a row of any length and alignment in vectors of four elements, where the first and the last vector may
// extend past the row; and reductions over a block.
#pragma once

#include <cstdint>

#include "cuda/tile.h"

namespace mh::kernels {

template <class T>
struct alignas(4 * sizeof(T)) Vec4 {
  T x[4];
};

// Returns whether columns i … i + 3 are within a row of n elements and are aligned, so that they can be accessed as one
// vector. A row that starts at element e of aligned memory is accessed from column -(e % 4) on, so that its inner
// vectors are aligned.
template <class T>
MH_DEVICE bool can_access_vec4(const T* row, int64_t i, int64_t n) {
  return i >= 0 && i + 4 <= n && reinterpret_cast<uintptr_t>(row + i) % sizeof(Vec4<T>) == 0;
}

// Returns whether column i is within a row of n elements.
MH_DEVICE bool is_in_row(int64_t i, int64_t n) { return i >= 0 && i < n; }

// Returns x rounded to T.
template <class Thread, class T>
MH_DEVICE T from_float(const Thread& thread, float x, T type) {
  return {static_cast<uint16_t>(thread.pack(x, 0.0f, type))};
}
template <class Thread>
MH_DEVICE float from_float(const Thread&, float x, float) {
  return x;
}

// Stores four elements, rounded to T, as one vector.
template <class Thread, class T>
MH_DEVICE void store_whole_vec4(const Thread& thread, T* to, const float (&x)[4]) {
  const uint32_t words[2] = {thread.pack(x[0], x[1], T{}), thread.pack(x[2], x[3], T{})};
  thread.store(to, words);
}
template <class Thread>
MH_DEVICE void store_whole_vec4(const Thread& thread, float* to, const float (&x)[4]) {
  thread.store(to, x);
}

// Loads columns i … i + 3 of a row of n elements; columns outside the row become `padding`.
template <class Thread, class T>
MH_DEVICE void load_vec4(const Thread& thread, const T* row, int64_t i, int64_t n, float (&to)[4], float padding = 0) {
  if (can_access_vec4(row, i, n)) {
    const Vec4<T> vector = *reinterpret_cast<const Vec4<T>*>(row + i);
    MH_FOR (k, 4) to[k] = to_float(thread, vector.x[k]);
  } else {
    MH_FOR (k, 4) to[k] = is_in_row(i + k, n) ? to_float(thread, row[i + k]) : padding;
  }
}

// Stores columns i … i + 3 of a row of n elements, rounded to T; columns outside the row are not stored.
template <class Thread, class T>
MH_DEVICE void store_vec4(const Thread& thread, T* row, int64_t i, int64_t n, const float (&from)[4]) {
  if (can_access_vec4(row, i, n)) {
    store_whole_vec4(thread, row + i, from);
  } else {
    MH_FOR (k, 4)
      if (is_in_row(i + k, n)) row[i + k] = from_float(thread, from[k], T{});
  }
}

// Calls f(i) for each of this thread's vectors i … i + 3 in a row of n elements, which starts `shift` elements after an
// aligned address.
template <class Thread, class F>
MH_DEVICE void for_each_vec4(const Thread& thread, int64_t shift, int64_t n, const F& f) {
  for (int64_t i = 4 * static_cast<int64_t>(thread.index()) - shift; i < n; i += 4 * thread.threads()) f(i);
}

constexpr int kRowThreads = 256;  // maximum number of threads of a block that computes a row
// Returns the number of threads of a block for a row of n elements: for short rows one warp, which reduces without
// shared memory.
inline int threads_for_row(int64_t n) { return n <= 1024 ? 32 : kRowThreads; }
// The shared memory of a reduction over a block: one number for each warp.
using WarpResults = float[kRowThreads / 32];

// Returns the reduction of x with `op` over all threads of the block, bit-identical in all threads.
// Called by all threads of a block.
template <class Thread, class Op>
MH_DEVICE float block_reduce(const Thread& thread, float x, WarpResults& warp_results, const Op& op) {
  MH_FOR (i, 5) x = op(x, thread.shuffle_xor(x, 1 << i));
  const int warps = thread.threads() / 32;
  if (warps == 1) return x;
  thread.barrier();  // until all threads have read the results of a previous reduction
  if (thread.lane() == 0) warp_results[thread.warp()] = x;
  thread.barrier();
  x = warp_results[0];
  for (int w = 1; w < warps; ++w) x = op(x, warp_results[w]);
  return x;
}
template <class Thread>
MH_DEVICE float block_sum(const Thread& thread, float x, WarpResults& warp_results) {
  return block_reduce(thread, x, warp_results, [](float a, float b) { return a + b; });
}
template <class Thread>
MH_DEVICE float block_max(const Thread& thread, float x, WarpResults& warp_results) {
  return block_reduce(thread, x, warp_results, [](float a, float b) { return a < b ? b : a; });
}

}  // namespace mh::kernels
