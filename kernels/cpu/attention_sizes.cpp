#include "cpu/attention_sizes.h"

namespace mh::kernels {

namespace {

using Fp32 = Fp32Products<Small, float>;  // sizes are the same for all tiles and types

// Scratch besides that of products.
int64_t forward_floats(const AttentionParams& how) {
  const int64_t span = forward_span(how);
  return kBlock * row_of(span) + kBlock * how.key_size + distances_scratch(how, span) + decisions_scratch(how, span);
}
int64_t backward_floats(const AttentionParams& how, int64_t keys) {
  const int64_t span = backward_span(how), row = row_of(span);
  return (2 * keys + how.queries) * how.key_size + 2 * kBlock * row + 2 * kBlock * how.key_size + row +
         padded(how.queries) + distances_scratch(how, span) + decisions_scratch(how, span);
}

}  // namespace

int64_t attention_forward_scratch(const AttentionParams& how) {
  return (uses_engine(how) ? Bf16Products::floats(how, false) : Fp32::floats(how, false)) + forward_floats(how);
}
int64_t attention_backward_scratch(const AttentionParams& how) {
  return uses_engine(how) ? Bf16Products::floats(how, true) + backward_floats(how, Bf16Products::keys(how))
                          : Fp32::floats(how, true) + backward_floats(how, Fp32::keys(how));
}

}  // namespace mh::kernels
