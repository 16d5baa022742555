// Properties of the processor: its second-level cache and its vector instructions. Kernels with products are compiled
// for three levels; the first call chooses the best level of the processor.
#pragma once

#include <cstdint>

namespace mh::kernels {

// x86-64, x86-64-v3, x86-64-v4, and x86-64-v4 with bf16 products. Other processors have only the first, with the
// compiler's default instructions.
enum class Level : uint8_t { baseline, avx2, avx512, avx512_bf16 };

Level best_level();  // best level of this processor
Level level();       // level in use
// Sets the level, at most that of the processor; for tests. Results of two levels differ by rounding.
void use_level(Level level);

// Size in bytes of the second-level cache of a core, which determines the kernels' tiles: results for two sizes differ
// by rounding. kDefaultL2Bytes if the system does not report it; at most kMostCache.
constexpr int64_t kDefaultL2Bytes = 1 << 20, kMostCache = 4 << 20;
int64_t second_level_cache();
void use_second_level_cache(int64_t bytes);  // for tests; 0: that of the processor

}  // namespace mh::kernels
