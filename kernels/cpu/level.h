// The processor as the kernels with products see it: its second-level cache and its vector instructions. Each of these
// kernels is compiled for three levels; the first call chooses the best level that the processor has.
#pragma once

#include <cstdint>

namespace mh::kernels {

// x86-64, x86-64-v3, x86-64-v4, and x86-64-v4 with products of bf16. On other processors the first alone, with the
// instructions that the compiler uses by default.
enum class Level : uint8_t { baseline, avx2, avx512, avx512_bf16 };

Level best_level();  // of this processor
Level level();       // what is used
// For tests: not above the processor's. Results of two levels differ by rounding.
void use_level(Level level);

// Bytes of the second-level cache of one of the processor's cores, by which the kernels cut their tiles: results of two
// sizes differ by rounding. Where the system does not say, kDefaultL2Bytes; no more than kMostCache.
constexpr int64_t kDefaultL2Bytes = 1 << 20, kMostCache = 4 << 20;
int64_t second_level_cache();
void use_second_level_cache(int64_t bytes);  // for tests; 0: the processor's

}  // namespace mh::kernels
