// Which vector instructions the kernels with products use: each is compiled for three levels, and the best that the
// processor has is chosen when one is first called.
#pragma once

#include <cstdint>

namespace mh::kernels {

enum class Level : uint8_t { baseline, avx2, avx512 };  // x86-64, x86-64-v3 and x86-64-v4

Level best_level();  // of this processor
Level level();       // what is used
// For tests: not above the processor's. Results of two levels differ by rounding.
void use_level(Level level);

}  // namespace mh::kernels
