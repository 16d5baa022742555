// One loop, compiled for each width of vector registers and chosen when the library is loaded: a processor with AVX2
// alone, or with neither, must work too. No file is built with -march=native.
#pragma once

#define MH_VECTOR_LOOP __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
