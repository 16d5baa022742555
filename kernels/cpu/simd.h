// How the loops of this folder are compiled for several instruction sets. kernels/meson.build compiles each file of
// loops once for every Level, with the flags of that level and MH_LEVEL as its name. Such a file defines the members of
// a class template over the level and instantiates it for its own; at_level() calls the members of the level in use.
//
// Nothing but such members may leave these files: an inline function that two files emit is linked once, from either of
// them (kernels/level_symbols.py).
#pragma once

#include <type_traits>

#include "cpu/level.h"

namespace mh::kernels {

#if defined(MH_LEVEL)
constexpr Level kLevel = Level::MH_LEVEL;
#endif

// Calls visit(level) with the level in use as a constant; levels with products of bf16 have the loops of AVX-512.
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
