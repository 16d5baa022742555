// The operations of one GPU thread that kernel bodies use: its indices, barriers, shuffles, tensor-core products,
// vector stores and asynchronous copies. Each operation except log2(), log1p() and tanh() is one or a few PTX
// instructions of sm_80. tests/emulator/host_thread.h implements the same operations on a CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/fragment.h"

namespace mh::kernels {

struct GpuThread {
  MH_DEVICE int lane() const { return static_cast<int>(threadIdx.x % 32); }
  MH_DEVICE int warp() const { return static_cast<int>(threadIdx.x / 32); }
  MH_DEVICE int index() const { return static_cast<int>(threadIdx.x); }
  MH_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  MH_DEVICE int block_x() const { return static_cast<int>(blockIdx.x); }
  MH_DEVICE int block_y() const { return static_cast<int>(blockIdx.y); }
  MH_DEVICE int block_z() const { return static_cast<int>(blockIdx.z); }
  MH_DEVICE int blocks_x() const { return static_cast<int>(gridDim.x); }

  MH_DEVICE void barrier() const { __syncthreads(); }
  MH_DEVICE void warp_barrier() const { __syncwarp(); }
  // Returns the argument x of lane `lane() ^ lane_mask`. Called by all lanes of a warp.
  MH_DEVICE float shuffle_xor(float x, int lane_mask) const { return __shfl_xor_sync(0xFFFFFFFFu, x, lane_mask); }

  // Returns 2^x, approximately. Results below 2^-126 are flushed to zero, which saves the two multiplications of exp2f.
  MH_DEVICE float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  MH_DEVICE float log2(float x) const { return log2f(x); }
  MH_DEVICE float log1p(float x) const { return log1pf(x); }
  MH_DEVICE float tanh(float x) const { return tanhf(x); }

  // Rounds two fp32 numbers to 16-bit numbers and packs them into a word: `low` into its lower half.
  MH_DEVICE uint32_t pack(float low, float high, Bf16) const {
    const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(x);
  }
  MH_DEVICE uint32_t pack(float low, float high, Fp16) const {
    const __half2 x = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(x);
  }
  // Converts the two 16-bit numbers in a word to fp32.
  MH_DEVICE void unpack(uint32_t x, float& low, float& high, Bf16) const {
    low = __uint_as_float(x << 16), high = __uint_as_float(x & 0xFFFF0000u);
  }
  MH_DEVICE void unpack(uint32_t x, float& low, float& high, Fp16) const {
    const float2 pair = __half22float2(reinterpret_cast<const __half2&>(x));
    low = pair.x, high = pair.y;
  }
  // Rounds to tf32 (11 significant bits), to nearest, ties away from zero.
  MH_DEVICE float round_tf32(float x) const {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
  }

  // Load four matrices (8, 8) of 16-bit elements from shared memory (ldmatrix); load_matrices_transposed() loads their
  // transposes. `row` of lane l is the address of row l % 8 of matrix l / 8, aligned to 16 bytes. to[m] of lane l
  // receives two elements of matrix m, or of its transpose: row l / 4, columns 2 (l % 4) and 2 (l % 4) + 1. Called by
  // all lanes of a warp.
  template <class T>
  MH_DEVICE void load_matrices(uint32_t (&to)[4], const T* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address(row))
                 : "memory");
  }
  template <class T>
  MH_DEVICE void load_matrices_transposed(uint32_t (&to)[4], const T* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address(row))
                 : "memory");
  }

  // Compute c (16, 8) += a (16, 16) · b (16, 8) for 16-bit elements, or c (16, 8) += a (16, 8) · b (8, 8) for fp32
  // elements that are rounded to tf32, accumulated in fp32 on the tensor cores. Called by all lanes of a warp.
  // cuda/fragment.h describes the fragments a, b and c.
  MH_DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Bf16) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  MH_DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Fp16) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  MH_DEVICE void multiply(float (&c)[4], const float (&a)[4], const float (&b)[2]) const {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(bits(a[0])), "r"(bits(a[1])), "r"(bits(a[2])), "r"(bits(a[3])), "r"(bits(b[0])), "r"(bits(b[1])));
  }

  // Store 16 or 8 bytes in one instruction; the address is aligned to the same number of bytes.
  MH_DEVICE void store(void* to, const float (&x)[4]) const {
    asm volatile("st.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
  }
  MH_DEVICE void store(void* to, const uint32_t (&x)[2]) const {
    asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x[0]), "r"(x[1]) : "memory");
  }

  // Stores 4 bytes to shared memory if `condition` is true, without a branch.
  MH_DEVICE void store_if(bool condition, void* to, uint32_t x) const {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.b32 [%0], %1;}" ::"r"(address(to)), "r"(x),
                 "r"(static_cast<uint32_t>(condition))
                 : "memory");
  }

  // Read 4, 8 or 16 bytes of global memory through the read-only cache, so no thread may write these bytes during the
  // kernel. The address is aligned to the same number of bytes.
  MH_DEVICE void read(float (&to)[1], const float* from) const { to[0] = __ldg(from); }
  MH_DEVICE void read(float (&to)[2], const float* from) const {
    const float2 x = __ldg(reinterpret_cast<const float2*>(from));
    to[0] = x.x, to[1] = x.y;
  }
  MH_DEVICE void read(float (&to)[4], const float* from) const {
    const float4 x = __ldg(reinterpret_cast<const float4*>(from));
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }

  // Starts an asynchronous copy of 16 bytes from global to shared memory (cp.async); both addresses are multiples of
  // 16. Only the first `bytes` bytes are read; the others become zero. commit_group() ends a group of copies of this
  // thread; wait_group<n>() waits until all groups of this thread but the last n are complete.
  MH_DEVICE void copy_16_bytes(void* to, const void* from, int bytes) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
  }
  MH_DEVICE void commit_group() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kGroups>
  MH_DEVICE void wait_group() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
  }

 private:
  static MH_DEVICE uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  static MH_DEVICE uint32_t bits(float x) { return __float_as_uint(x); }
};

}  // namespace mh::kernels
