// One loop, compiled for each width of vector registers and chosen when the library is loaded: a processor with AVX2
// alone, or with neither, must work too. No file is built with -march=native. On other architectures the compiler uses
// what all processors of theirs have: NEON on arm64.
#pragma once

#if defined(__x86_64__)
#define MH_VECTOR_LOOP __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
// For one level alone (cpu/level.h).
#define MH_AVX512 __attribute__((target("arch=x86-64-v4")))
#define MH_AVX2 __attribute__((target("arch=x86-64-v3")))
#else
#define MH_VECTOR_LOOP
#define MH_AVX512
#define MH_AVX2
#endif
