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

Level best_level() {
  static const Level best = __builtin_cpu_supports("x86-64-v4")   ? Level::avx512
                            : __builtin_cpu_supports("x86-64-v3") ? Level::avx2
                                                                  : Level::baseline;
  return best;
}
Level level() { return used(); }
void use_level(Level level) { used() = std::min(level, best_level()); }

}  // namespace mh::kernels
