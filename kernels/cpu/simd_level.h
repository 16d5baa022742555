// Properties of the processor: its vector instructions and the size of its L2 cache. Kernels are compiled for several
// levels of vector instructions; by default the best level of the processor is used.
#pragma once

#include <cstdint>

namespace mh::kernels {

// The instruction sets x86-64, x86-64-v3, x86-64-v4, and x86-64-v4 with AVX512-BF16. Processors other than x86-64 have
// only `baseline`, which is the compiler's default.
enum class SimdLevel : uint8_t { baseline, avx2, avx512, avx512_bf16 };

SimdLevel best_simd_level();  // returns the highest level that the processor supports
SimdLevel simd_level();       // returns the level in use
// Sets the level in use to `level`, but at most to best_simd_level(). For tests. Results of two levels may differ by
// rounding.
void set_simd_level(SimdLevel level);

// Returns the size in bytes of the L2 cache of a core: kDefaultL2Bytes if the system does not report it, and at most
// kMaxL2Bytes. The size determines the tiles of the kernels, so results for two sizes may differ by rounding.
constexpr int64_t kDefaultL2Bytes = 1 << 20, kMaxL2Bytes = 4 << 20;
int64_t l2_cache_bytes();
// Sets the size that l2_cache_bytes() returns; 0: the size of the processor's cache. For tests.
void set_l2_cache_bytes(int64_t bytes);

}  // namespace mh::kernels
