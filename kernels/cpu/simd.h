// Compilation of the loops in this folder for several instruction sets. kernels/meson.build compiles each file of loops
// once for every Level, with the flags of the level and its name in MH_LEVEL. Such a file defines the members of a
// class template over the level and instantiates it for its own level; at_level() calls the members of the level in
// use.
//
// These files must export no other symbols: an inline function in two files is linked once, from either of them
// (kernels/level_symbols.py).
#pragma once

#include <type_traits>

#include "cpu/level.h"

namespace mh::kernels {

#if defined(MH_LEVEL)
constexpr Level kLevel = Level::MH_LEVEL;
#endif

// Calls visit(level) with the level in use as a constant; levels with bf16 products use the loops of AVX-512.
template <class Visit>
inline decltype(auto) at_level(const Visit& visit) {
#if defined(__x86_64__)
  const Level used = level();
  if (used >= Level::avx512) return visit(std::integral_constant<Level, Level::avx512>());
  if (used == Level::avx2) return visit(std::integral_constant<Level, Level::avx2>());
#endif
  return visit(std::integral_constant<Level, Level::baseline>());
}

}  // namespace mh::kernels
