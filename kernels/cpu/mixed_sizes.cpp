#include "cpu/mixed/layout.h"

namespace mh::kernels {

int64_t mixed_attention_rows(const AttentionParams& how) { return tile_size(how).rows; }

int64_t mixed_key_floats(const AttentionParams& how) { return key_floats(how); }
int64_t mixed_value_floats(const AttentionParams& how) { return value_floats(how); }

int64_t mixed_pack_floats(const AttentionParams& how, bool backward) {
  return mixes_few(how) ? 0 : (backward ? 2 : 1) * mixed_key_floats(how) + mixed_value_floats(how);
}

int64_t mixed_forward_scratch(const AttentionParams& how) {
  if (mixes_few(how)) return mixed_few_floats(how);
  const Layout l(how, tile_size(how));
  return l.tile() + how.in_heads * l.rows * l.dk + how.out_heads * l.rows * l.dv + l.heads * chunk +
         padded(how.in_heads * how.out_heads) + 2 * l.rows * how.in_heads + padded(how.in_heads) +
         decisions_scratch(how, l) + positions_scratch(how, l);
}
int64_t mixed_backward_scratch(const AttentionParams& how) {
  const Layout l(how, tile_size(how));
  return 2 * l.tile() + 3 * how.in_heads * l.rows * l.dk + how.out_heads * l.rows * l.dv +
         how.in_heads * how.out_heads * lanes + l.rows * how.in_heads * how.out_heads + 2 * l.heads * chunk +
         l.rows * how.in_heads + padded(how.in_heads * how.out_heads) + padded(how.in_heads) +
         decisions_scratch(how, l) + l.query() + positions_scratch(how, l);
}

bool mixed_takes_few(const AttentionParams& how) { return mixes_few(how); }
int64_t mixed_few_floats(const AttentionParams& how) {
  const Layout l = of_few(how);
  return how.queries * l.query() + l.heads * chunk + padded(how.in_heads * how.out_heads) + 2 * how.in_heads;
}

}  // namespace mh::kernels
