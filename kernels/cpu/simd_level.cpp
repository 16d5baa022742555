// Detects the best level of vector instructions and the size of the L2 cache, and stores the values in use.
#include "cpu/simd_level.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace mh::kernels {

namespace {

// Returns the level whose kernels run: best_simd_level() until a call of set_simd_level().
std::atomic<SimdLevel>& level_in_use() {
  static std::atomic<SimdLevel> level = best_simd_level();
  return level;
}

// Returns the L2 cache size that set_l2_cache_bytes() sets, in bytes; 0: the size of the processor's cache.
std::atomic<int64_t>& l2_override() {
  static std::atomic<int64_t> bytes{0};
  return bytes;
}

}  // namespace

#if defined(__x86_64__)
namespace {

// The __builtin_cpu_supports() of clang 14 accepts names of features, but not names of x86-64 levels.
#if defined(__clang__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx2() { return __builtin_cpu_supports("x86-64-v3"); }
bool has_avx512() { return __builtin_cpu_supports("x86-64-v4"); }
#endif

}  // namespace

SimdLevel best_simd_level() {
  static const SimdLevel best = !has_avx2()                             ? SimdLevel::baseline
                                : !has_avx512()                         ? SimdLevel::avx2
                                : !__builtin_cpu_supports("avx512bf16") ? SimdLevel::avx512
                                                                        : SimdLevel::avx512_bf16;
  return best;
}
#else
SimdLevel best_simd_level() { return SimdLevel::baseline; }
#endif

int64_t l2_cache_bytes() {
  if (const int64_t bytes = l2_override(); bytes > 0) return bytes;
  static const int64_t detected_bytes = [] {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    const int64_t size = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    const int64_t size = 0;
#endif
    // A cache of more than kMaxL2Bytes bytes is assumed to be shared by several cores.
    return size > 0 ? std::min(size, kMaxL2Bytes) : kDefaultL2Bytes;
  }();
  return detected_bytes;
}
void set_l2_cache_bytes(int64_t bytes) { l2_override() = bytes; }

SimdLevel simd_level() { return level_in_use(); }
void set_simd_level(SimdLevel level) { level_in_use() = std::min(level, best_simd_level()); }

}  // namespace mh::kernels
