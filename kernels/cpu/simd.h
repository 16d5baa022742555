// Dispatch of the loops in this folder to the instruction set of the processor. kernels/meson.build compiles each
// source file with loops once for every SimdLevel of the architecture except avx512_bf16, with the compiler flags of
// the level and with its name in the macro MH_LEVEL. Such a file defines the members of a class template over the level
// (…Loops) and instantiates the template for its own level. With dispatch_simd_level() a caller selects the members for
// the level in use.
//
// Such a file must export no other symbols: if the files of several levels exported the same inline function, the
// linker would keep one definition, whose instructions the processor may lack. kernels/level_symbols.py checks the
// exported symbols.
#pragma once

#include <type_traits>

#include "cpu/simd_level.h"

namespace mh::kernels {

#if defined(MH_LEVEL)
constexpr SimdLevel kSimdLevel = SimdLevel::MH_LEVEL;
#endif

// Returns visit(level), where `level` is the level in use as a std::integral_constant; SimdLevel::avx512_bf16 uses the
// loops of SimdLevel::avx512.
template <class Visit>
inline decltype(auto) dispatch_simd_level(const Visit& visit) {
#if defined(__x86_64__)
  const SimdLevel active_level = simd_level();
  if (active_level >= SimdLevel::avx512) return visit(std::integral_constant<SimdLevel, SimdLevel::avx512>());
  if (active_level == SimdLevel::avx2) return visit(std::integral_constant<SimdLevel, SimdLevel::avx2>());
#endif
  return visit(std::integral_constant<SimdLevel, SimdLevel::baseline>());
}

}  // namespace mh::kernels
