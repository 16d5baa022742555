// The loops of mixed_attention.cpp, which includes this once for every level of vector instructions: MH_TARGET compiles
// a function for it. What is always inlined besides is so in all of them. Each part reads what stands in those before.

// clang-format off
#include "cpu/mixed/pack.h"
#include "cpu/mixed/products.h"
#include "cpu/mixed/query.h"
#include "cpu/mixed/few.h"
#include "cpu/mixed/passes.h"
// clang-format on

template <class T>
constexpr Loops<T> loops{pack<T>, forward<T>, backward<T>, gather<T>, few_logits<T>, few_mix, few_values<T>};
