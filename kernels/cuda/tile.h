// Tiles of rows between global and shared memory.
#pragma once

#include "cuda/attention.h"
#include "cuda/fragment.h"

namespace mh::kernels {

template <class T>
MH_DEVICE T* row_of(const Rows<T>& rows, int64_t b, int64_t head, int64_t position) {
  return rows.data + b * rows.batch + head * rows.head + position * rows.position;
}

template <class Thread, class T>
MH_DEVICE float widened(const Thread& thread, T x) {
  float low, high;
  thread.unpack(x.bits, low, high, T{});
  return low;
}
template <class Thread>
MH_DEVICE float widened(const Thread&, float x) {
  return x;
}

// 16 bytes of row `row` from column c on, of the head at `data`, into shared memory; zeros where there is no row (row
// >= end) or no column (c >= size). Asynchronous where rows are aligned.
template <class Thread, class T>
MH_DEVICE void copy_vector(const Thread& thread, T* to, const T* data, int64_t position, int row, int end, int c,
                           int size, bool aligned) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  int count = row < end ? size - c : 0;
  count = count < 0 ? 0 : count > kVector ? kVector : count;
  const T* from = count > 0 ? data + row * position + c : data;
  if (aligned) {
    thread.copy_16(to, from, count * static_cast<int>(sizeof(T)));
  } else {
    for (int e = 0; e < kVector; ++e) to[e] = e < count ? from[e] : T{};
  }
}

// Rows first … first + kRows - 1 of one head, at data + r * position, into shared memory, kStride apart, by the whole
// block; zeros from row `end` and column `size` on.
template <int kRows, int kSize, int kStride, class Thread, class T>
MH_DEVICE void load_tile(const Thread& thread, T* to, const T* data, int64_t position, int first, int end, int size,
                         bool aligned) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kVectors = kSize / kVector;
  for (int i = thread.index(); i < kRows * kVectors; i += thread.threads()) {
    const int r = i / kVectors, c = i % kVectors * kVector;
    copy_vector(thread, to + r * kStride + c, data, position, first + r, end, c, size, aligned);
  }
}

// visit(s, stage, place) for tiles of kStep rows from s on, first … end - 1, by the whole block. What it reads has
// arrived for this thread only, so it begins with a barrier. load(s, stage, place, begins) starts the copies of a tile;
// with two stages they are on their way while the one before is visited. `begins`: nothing of the tile before is there.
// `place` is 0, then next(place): of what moves along with the tiles.
template <int kStages, int kStep, class Thread, class Load, class Next, class Visit>
MH_DEVICE void each_tile(const Thread& thread, int first, int end, const Load& load, const Next& next,
                         const Visit& visit) {
  load(first, 0, 0, true);
  thread.end_group();
  int stage = 0, place = 0;
  for (int s = first; s < end; s += kStep) {
    const int other = kStages == 2 ? stage ^ 1 : 0;
    const auto load_next = [&] {
      if (s + kStep < end) load(s + kStep, other, next(place), false);
      thread.end_group();
    };
    if constexpr (kStages == 2) load_next();
    thread.template wait<kStages - 1>();
    visit(s, stage, place);
    thread.barrier();
    if constexpr (kStages == 1) load_next();
    stage = other, place = next(place);
  }
}

template <class Thread, class T>
MH_DEVICE void put(const Thread& thread, T* to, float x) {
  to->bits = static_cast<uint16_t>(thread.pack(x, 0, T{}));
}
template <class Thread>
MH_DEVICE void put(const Thread&, float* to, float x) {
  *to = x;
}

template <class Thread, class T>
MH_DEVICE void put_pair(const Thread& thread, T* to, float left, float right) {
  *reinterpret_cast<uint32_t*>(to) = thread.pack(left, right, T{});
}
template <class Thread>
MH_DEVICE void put_pair(const Thread&, float* to, float left, float right) {
  to[0] = left, to[1] = right;
}

// A warp's 16 rows: of `sums` times a factor for each of the lane's rows, by way of its 16 rows of shared memory.
template <int kSize, int kStride, class Thread, class T>
MH_DEVICE void store_rows(const Thread& thread, T* through, const Sum (&sums)[kSize / 8], const float (&factor)[2],
                          T* data, int64_t position, int first, int end, int size, bool aligned) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  thread.warp_barrier();
  MH_FOR (n, kSize / 8)
    MH_FOR (r, 2)
      put_pair(thread, through + (g + 8 * r) * kStride + n * 8 + 2 * t, sums[n].x[2 * r] * factor[r],
               sums[n].x[2 * r + 1] * factor[r]);
  thread.warp_barrier();
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kVectors = kSize / kVector;
  struct alignas(16) Vector {
    T x[kVector];
  };
  for (int i = thread.lane(); i < 16 * kVectors; i += 32) {
    const int r = i / kVectors, c = i % kVectors * kVector;
    if (first + r >= end || c >= size) continue;
    const T* from = through + r * kStride + c;
    T* to = data + (first + r) * position + c;
    if (aligned && c + kVector <= size) {
      *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(from);
    } else {
      for (int e = 0; e < kVector && c + e < size; ++e) to[e] = from[e];
    }
  }
  thread.warp_barrier();
}

}  // namespace mh::kernels
