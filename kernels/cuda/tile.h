// Copies of tiles of rows between global memory, shared memory and registers.
#pragma once

#include "cuda/attention.h"
#include "cuda/fragment.h"

namespace mh::kernels {

// Returns the address of the row of a tensor at batch row b, head `head` and position `position`.
template <class T>
MH_DEVICE T* row_of(const StridedTensor<T>& tensor, int64_t b, int64_t head, int64_t position) {
  return tensor.data + b * tensor.batch_stride + head * tensor.head_stride + position * tensor.row_stride;
}

// A matrix (rows, columns) in global memory, with row r at data + r * row_stride. has_aligned_rows: rows begin and end
// at multiples of 16 bytes.
template <class T>
struct GlobalMatrix {
  T* data;
  int64_t row_stride;  // in elements
  int rows, columns;
  bool has_aligned_rows;
};

// Returns the first `rows` rows of a tensor, each of `columns` elements, at batch row b and head `head`.
// has_aligned_rows: AttentionParams::has_aligned_rows.
template <class T>
MH_DEVICE GlobalMatrix<T> matrix_of_head(const StridedTensor<T>& tensor, int64_t b, int64_t head, int rows, int columns,
                                         bool has_aligned_rows) {
  return {row_of(tensor, b, head, 0), tensor.row_stride, rows, columns, has_aligned_rows};
}

template <class Thread, class T>
MH_DEVICE float to_float(const Thread& thread, T x) {
  float low, high;
  thread.unpack(x.bits, low, high, T{});
  return low;
}
template <class Thread>
MH_DEVICE float to_float(const Thread&, float x) {
  return x;
}

// The threads of a block or of a warp that share a copy: the index of the current thread, and the number of threads.
struct ThreadGroup {
  int index, threads;
};
template <class Thread>
MH_DEVICE ThreadGroup block_of(const Thread& thread) {
  return {thread.index(), thread.threads()};
}
template <class Thread>
MH_DEVICE ThreadGroup warp_of(const Thread& thread) {
  return {thread.lane(), 32};
}

// Calls visit(row, column) for each of this thread's 16-byte vectors in `rows` rows of kSize elements. Avoids a
// division in the loop if 32 is a multiple of the number of vectors in a row.
template <class T, int kSize, class Visit>
MH_DEVICE void for_each_vector(const ThreadGroup& group, int rows, const Visit& visit) {
  constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T)), kRowVectors = kSize / kVectorSize;
  if constexpr (32 % kRowVectors == 0) {
    const int column = group.index % kRowVectors * kVectorSize, step = group.threads / kRowVectors;
    for (int row = group.index / kRowVectors; row < rows; row += step) visit(row, column);
  } else {
    MH_UNROLL_4
    for (int i = group.index; i < rows * kRowVectors; i += group.threads)
      visit(i / kRowVectors, i % kRowVectors * kVectorSize);
  }
}

// Returns the offset of row `row`, in elements. row_stride is below 2^31, so a product of 32-bit factors suffices.
MH_DEVICE int64_t offset_of_row(int row, int64_t row_stride) { return int64_t{row} * static_cast<int>(row_stride); }

// Loads rows `first` … `first` + `count` - 1 of a matrix into shared memory, row `first` + i to address `to` +
// offset_of(i). Rows outside the matrix and columns from matrix.columns to kSize - 1 become zero. Called by the threads
// of `group`. With matrix.has_aligned_rows the copy is asynchronous: commit_group() and wait_group() complete it.
template <int kSize, class Thread, class T, class OffsetOf>
MH_DEVICE void load_rows(const Thread& thread, const ThreadGroup& group, T* to, GlobalMatrix<const T> matrix, int first,
                         int count, const OffsetOf& offset_of) {
  constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T)), kRowVectors = kSize / kVectorSize;
  const auto in_range = [&](int row) { return static_cast<unsigned>(row) < static_cast<unsigned>(matrix.rows); };
  if (matrix.has_aligned_rows && 32 % kRowVectors == 0) {
    const int column = group.index % kRowVectors * kVectorSize, step = group.threads / kRowVectors;
    int row = group.index / kRowVectors;
    const int row_end = column < matrix.columns ? matrix.rows : 0;
    const T* from = matrix.data + offset_of_row(first + row, matrix.row_stride) + column;
    const int64_t step_offset = offset_of_row(step, matrix.row_stride);
    MH_UNROLL_4
    for (; row < count; row += step, from += step_offset)
      thread.copy_16_bytes(to + offset_of(row) + column, from,
                           static_cast<unsigned>(first + row) < static_cast<unsigned>(row_end) ? 16 : 0);
  } else if (matrix.has_aligned_rows) {
    for_each_vector<T, kSize>(group, count, [&](int r, int c) {
      thread.copy_16_bytes(to + offset_of(r) + c, matrix.data + offset_of_row(first + r, matrix.row_stride) + c,
                           in_range(first + r) && c < matrix.columns ? 16 : 0);
    });
  } else {
    for_each_vector<T, kSize>(group, count, [&](int r, int c) {
      const T* from = matrix.data + offset_of_row(first + r, matrix.row_stride) + c;
      const int num_valid = in_range(first + r) ? matrix.columns - c : 0;
      MH_ROLLED
      for (int e = 0; e < kVectorSize; ++e) to[offset_of(r) + c + e] = e < num_valid ? from[e] : T{};
    });
  }
}

// Loads rows `first` … `first` + kRows - 1 of a matrix into `to` (kRows, kSize) with row stride kStride, like
// load_rows(). Called by all threads of a block.
template <int kRows, int kSize, int kStride, class Thread, class T>
MH_DEVICE void load_tile(const Thread& thread, T* to, GlobalMatrix<const T> matrix, int first) {
  load_rows<kSize>(thread, block_of(thread), to, matrix, first, kRows, [](int r) { return r * kStride; });
}

// Streams rows `first` … `end` - 1, in tiles of kStep rows, through kStages (1 or 2) pipeline stages. Called by all
// threads of a block. For each tile, whose first row is s, it calls load(s, stage, ring_row, is_first), which starts
// asynchronous copies into stage `stage`, and then visit(s, stage, ring_row). With two stages the copies of a tile run
// while the previous tile is visited. visit() must begin with a barrier, since the copies are complete for the current
// thread only. is_first: whether the tile is the first one. ring_row, the position in a sliding window
// (cuda/relative.h), is 0 for the first tile; next_ring_row() maps it to the ring_row of the next tile. If the range is
// empty, load() is called once and visit() is not called.
template <int kStages, int kStep, class Thread, class Load, class NextRingRow, class Visit>
MH_DEVICE void for_each_tile(const Thread& thread, int first, int end, const Load& load,
                             const NextRingRow& next_ring_row, const Visit& visit) {
  load(first, 0, 0, true);
  thread.commit_group();
  int stage = 0, ring_row = 0;
  for (int s = first; s < end; s += kStep) {
    const int next_stage = kStages == 2 ? stage ^ 1 : 0;
    const auto load_next = [&] {
      if (s + kStep < end) load(s + kStep, next_stage, next_ring_row(ring_row), false);
      thread.commit_group();
    };
    if constexpr (kStages == 2) load_next();
    thread.template wait_group<kStages - 1>();
    visit(s, stage, ring_row);
    thread.barrier();
    if constexpr (kStages == 1) load_next();
    stage = next_stage, ring_row = next_ring_row(ring_row);
  }
}

// Stores x, rounded to T.
template <class Thread, class T>
MH_DEVICE void store_element(const Thread& thread, T* to, float x) {
  to->bits = static_cast<uint16_t>(thread.pack(x, 0, T{}));
}
template <class Thread>
MH_DEVICE void store_element(const Thread&, float* to, float x) {
  *to = x;
}

// Stores two adjacent elements, rounded to T.
template <class Thread, class T>
MH_DEVICE void store_pair(const Thread& thread, T* to, float left, float right) {
  *reinterpret_cast<uint32_t*>(to) = thread.pack(left, right, T{});
}
template <class Thread>
MH_DEVICE void store_pair(const Thread&, float* to, float left, float right) {
  to[0] = left, to[1] = right;
}

// Stores `accum` (16, kSize), the accumulators of a warp, multiplied by a factor for each row and rounded to T, to rows
// `first` … `first` + 15 of a matrix. factor: factors of a lane's two rows. staging (16, kStride): shared memory of the
// warp. Rows and columns outside the matrix are not stored.
template <int kSize, int kStride, class Thread, class T>
MH_DEVICE void store_rows(const Thread& thread, T* staging, const Accumulator (&accum)[kSize / 8],
                          const float (&factor)[2], GlobalMatrix<T> matrix, int first) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  thread.warp_barrier();
  MH_FOR (n, kSize / 8)
    MH_FOR (r, 2)
      store_pair(thread, staging + (g + 8 * r) * kStride + n * 8 + 2 * t, accum[n].x[2 * r] * factor[r],
                 accum[n].x[2 * r + 1] * factor[r]);
  thread.warp_barrier();
  constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T)), kRowVectors = kSize / kVectorSize;
  struct alignas(16) Vector {
    T x[kVectorSize];
  };
  for (int i = thread.lane(); i < 16 * kRowVectors; i += 32) {
    const int r = i / kRowVectors, c = i % kRowVectors * kVectorSize;
    if (first + r >= matrix.rows || c >= matrix.columns) continue;
    const T* from = staging + r * kStride + c;
    T* to = matrix.data + offset_of_row(first + r, matrix.row_stride) + c;
    if (matrix.has_aligned_rows && c + kVectorSize <= matrix.columns) {
      *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(from);
    } else {
      for (int e = 0; e < kVectorSize && c + e < matrix.columns; ++e) to[e] = from[e];
    }
  }
  thread.warp_barrier();
}

}  // namespace mh::kernels
