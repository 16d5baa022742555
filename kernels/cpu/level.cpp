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
  static const Level best = !__builtin_cpu_supports("x86-64-v3")    ? Level::baseline
                            : !__builtin_cpu_supports("x86-64-v4")  ? Level::avx2
                            : !__builtin_cpu_supports("avx512bf16") ? Level::avx512
                                                                    : Level::avx512_bf16;
  return best;
}
#else
Level best_level() { return Level::baseline; }
#endif

Level level() { return used(); }
void use_level(Level level) { used() = std::min(level, best_level()); }

}  // namespace mh::kernels
