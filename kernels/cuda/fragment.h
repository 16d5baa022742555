// Matrix fragments in the registers of a warp, in the layout of the tensor-core instructions m16n8k16 and m16n8k8 (PTX
// ISA, warp-level matrix instructions), and their loads from shared memory. Lane 4 g + t holds rows g and g + 8,
// columns 2 t and 2 t + 1 of an accumulator (16, 8).
//
// Every kernel is a template over `Thread`, which provides the operations of one thread of a block: GpuThread of
// cuda/thread.h on a GPU, or Thread of tests/emulator/host_thread.h on a CPU, where tests run every kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define MH_DEVICE __device__ __forceinline__
#define MH_UNROLL _Pragma("unroll")
#define MH_UNROLL_PREFETCH _Pragma("unroll kPrefetch")
#define MH_UNROLL_4 _Pragma("unroll 4")
#define MH_ROLLED _Pragma("unroll 1")
#else
#define MH_DEVICE inline
#define MH_UNROLL
#define MH_UNROLL_PREFETCH
#define MH_UNROLL_4
#define MH_ROLLED
#endif
// A fully unrolled loop over i. Arrays in registers require it: registers are not addressable, so indices must be
// constants.
#define MH_FOR(i, count) MH_UNROLL for (int i = 0; i < (count); ++i)

namespace mh::kernels {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

// A lane's part of an fp32 matrix (16, 8): x[2 * r + e] is row g + 8 * r, column 2 * t + e.
struct Accumulator {
  float x[4] = {0, 0, 0, 0};
};

// A lane's part of the operands A (16, 16) and B (16, 8) of a product A · B. In fp32 the columns of A and the rows of B
// are permuted in the same way, which does not change the product.
template <class T>
struct alignas(16) FragmentA {
  uint32_t x[4];
};
template <>
struct alignas(16) FragmentA<float> {
  float x[8];
};
template <class T>
struct FragmentB {
  uint32_t x[2];
};
template <>
struct FragmentB<float> {
  float x[4];
};

// Number of padding elements after each row of a tile in shared memory, which put the rows of a fragment in different
// banks.
constexpr int kPad = 8;

// Loads an operand A (16, 16) from shared memory; row r, column c is at tile[r * stride + c]. Called by all lanes of a
// warp.
template <class Thread, class T>
MH_DEVICE void load(const Thread& thread, FragmentA<T>& to, const T* tile, int stride) {
  thread.load_matrices(to.x, tile + thread.lane() % 16 * stride + thread.lane() / 16 * 8);
}

template <class Thread>
MH_DEVICE void load(const Thread& thread, FragmentA<float>& to, const float* tile, int stride) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (i, 8) to.x[i] = tile[(g + i % 2 * 8) * stride + i / 4 * 8 + 2 * t + i / 2 % 2];
}

// Loads two operands B, together (16, 16), from shared memory, transposed: row r, column c is at tile[c * stride + r].
template <class Thread, class T>
MH_DEVICE void load_transposed(const Thread& thread, FragmentB<T> (&to)[2], const T* tile, int stride) {
  uint32_t x[4];
  thread.load_matrices(x, tile + (thread.lane() % 8 + thread.lane() / 16 * 8) * stride + thread.lane() / 8 % 2 * 8);
  MH_FOR (i, 4) to[i / 2].x[i % 2] = x[i];
}

template <class Thread>
MH_DEVICE void load_transposed(const Thread& thread, FragmentB<float> (&to)[2], const float* tile, int stride) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, 2)
    MH_FOR (i, 4) to[n].x[i] = tile[(n * 8 + g) * stride + i / 2 * 8 + 2 * t + i % 2];
}

// Loads two operands B, together (16, 16), from shared memory; row r, column c is at tile[r * stride + c].
template <class Thread, class T>
MH_DEVICE void load(const Thread& thread, FragmentB<T> (&to)[2], const T* tile, int stride) {
  uint32_t x[4];
  thread.load_matrices_transposed(x, tile + thread.lane() % 16 * stride + thread.lane() / 16 * 8);
  MH_FOR (i, 4) to[i / 2].x[i % 2] = x[i];
}

template <class Thread>
MH_DEVICE void load(const Thread& thread, FragmentB<float> (&to)[2], const float* tile, int stride) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, 2)
    MH_FOR (i, 4) to[n].x[i] = tile[(i / 2 * 8 + 2 * t + i % 2) * stride + n * 8 + g];
}

// Converts two accumulators, together (16, 16), to an operand A, rounded to T.
template <class Thread, class T>
MH_DEVICE void round_to_fragment_a(const Thread& thread, FragmentA<T>& to, const Accumulator& accum0,
                                   const Accumulator& accum1) {
  to.x[0] = thread.pack(accum0.x[0], accum0.x[1], T{}), to.x[1] = thread.pack(accum0.x[2], accum0.x[3], T{});
  to.x[2] = thread.pack(accum1.x[0], accum1.x[1], T{}), to.x[3] = thread.pack(accum1.x[2], accum1.x[3], T{});
}

template <class Thread>
MH_DEVICE void round_to_fragment_a(const Thread&, FragmentA<float>& to, const Accumulator& accum0,
                                   const Accumulator& accum1) {
  MH_FOR (i, 4) to.x[i] = accum0.x[i / 2 + i % 2 * 2], to.x[4 + i] = accum1.x[i / 2 + i % 2 * 2];
}

// Converts an operand A to two accumulators, together (16, 16); exact.
template <class Thread, class T>
MH_DEVICE void widen(const Thread& thread, Accumulator (&to)[2], const FragmentA<T>& from) {
  MH_FOR (i, 4) thread.unpack(from.x[i], to[i / 2].x[i % 2 * 2], to[i / 2].x[i % 2 * 2 + 1], T{});
}

template <class Thread>
MH_DEVICE void widen(const Thread&, Accumulator (&to)[2], const FragmentA<float>& from) {
  MH_FOR (i, 4) to[0].x[i / 2 + i % 2 * 2] = from.x[i], to[1].x[i / 2 + i % 2 * 2] = from.x[4 + i];
}

// Computes `accum += frag_a · frag_b` for `accum` (16, 8), `frag_a` (16, 16) and `frag_b` (16, 8).
template <class Thread, class T>
MH_DEVICE void multiply(const Thread& thread, Accumulator& accum, const FragmentA<T>& frag_a,
                        const FragmentB<T>& frag_b) {
  thread.multiply(accum.x, frag_a.x, frag_b.x, T{});
}

// Computes `accum += frag_a · frag_b` for fp32 operands on tf32 tensor cores (3xTF32). Each operand is split into two
// tf32 numbers of 11 bits, high + low; three products are computed, and low * low, at most 2^-22 of the result, is
// omitted. The tensor cores truncate sums towards zero, so the errors of a chain of products accumulate.
// kSeparateAccum: the three products are summed in an accumulator of their own and then added to `accum` with rounding
// to nearest, which is more accurate but takes more registers.
template <bool kSeparateAccum, class Thread>
MH_DEVICE void multiply_tf32(const Thread& thread, Accumulator& accum, const FragmentA<float>& frag_a,
                             const FragmentB<float>& frag_b) {
  MH_FOR (half, 2) {
    float a[2][4], b[2][2];
    MH_FOR (i, 4) {
      a[0][i] = thread.round_tf32(frag_a.x[4 * half + i]);
      a[1][i] = thread.round_tf32(frag_a.x[4 * half + i] - a[0][i]);
    }
    MH_FOR (i, 2) {
      b[0][i] = thread.round_tf32(frag_b.x[2 * half + i]);
      b[1][i] = thread.round_tf32(frag_b.x[2 * half + i] - b[0][i]);
    }
    Accumulator separate_accum;
    Accumulator& target = kSeparateAccum ? separate_accum : accum;
    thread.multiply(target.x, a[1], b[0]);
    thread.multiply(target.x, a[0], b[1]);
    thread.multiply(target.x, a[0], b[0]);
    if constexpr (kSeparateAccum) {
      MH_FOR (e, 4) accum.x[e] += target.x[e];
    }
  }
}
template <class Thread>
MH_DEVICE void multiply(const Thread& thread, Accumulator& accum, const FragmentA<float>& frag_a,
                        const FragmentB<float>& frag_b) {
  multiply_tf32<false>(thread, accum, frag_a, frag_b);
}

// Computes `accum += frag_a · frag_b`; fp32 operands have a separate accumulator (multiply_tf32). Used for dP, and for
// logits, whose absolute error is a relative error of the probability. Products with accumulators that live for the
// whole loop over keys or queries use multiply(), since there are no registers for a separate accumulator.
template <class Thread, class T>
MH_DEVICE void multiply_accurate(const Thread& thread, Accumulator& accum, const FragmentA<T>& frag_a,
                                 const FragmentB<T>& frag_b) {
  if constexpr (std::is_same_v<T, float>) multiply_tf32<true>(thread, accum, frag_a, frag_b);
  else multiply(thread, accum, frag_a, frag_b);
}

}  // namespace mh::kernels
