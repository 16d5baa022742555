#include "cpu/level.h"

#include <algorithm>
#include <atomic>

namespace mh::kernels {

namespace {

std::atomic<Level>& used() {
  static std::atomic<Level> level = best_level();
  return level;
}

}  // namespace

#if defined(__x86_64__)
Level best_level() {
  static const Level best = __builtin_cpu_supports("x86-64-v4")   ? Level::avx512
                            : __builtin_cpu_supports("x86-64-v3") ? Level::avx2
                                                                  : Level::baseline;
  return best;
}
bool has_bf16_products() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}
#else
Level best_level() { return Level::baseline; }
bool has_bf16_products() { return false; }
#endif

Level level() { return used(); }
void use_level(Level level) { used() = std::min(level, best_level()); }

}  // namespace mh::kernels
