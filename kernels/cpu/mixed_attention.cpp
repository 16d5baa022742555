#include "cpu/mixed_attention.h"

#include <algorithm>
#include <cmath>

#include "cpu/attention.h"
#include "cpu/attention_row.h"
#include "cpu/bf16_operands.h"
#include "cpu/dropout_decisions.h"
#include "cpu/head_mix_chunk.h"
#include "cpu/level.h"
#include "cpu/products.h"
#include "cpu/relative.h"

namespace mh::kernels {

namespace {

constexpr int64_t chunk = kMixWidth;  // keys

int64_t chunks_of(int64_t keys) { return (keys + chunk - 1) / chunk; }

// Queries and keys of a tile, fixed by the sizes and the cache alone, since they decide in which order numbers are
// added.
struct TileSize {
  int64_t rows, span;  // multiples of 8 and of `chunk`
};
TileSize tile_size(const MixedAttention& how) {
  constexpr int64_t least = 32, most = 64;
  const int64_t all = chunks_of(how.most_keys) * chunk, heads = std::max(how.in, how.out);
  const int64_t of_key = heads * static_cast<int64_t>(sizeof(float)), of_query = std::max<int64_t>(1, all * of_key);
  // All keys at once, though a tile is larger than the cache: two passes take 1.4 times the products, which reading the
  // third level costs no sooner.
  if (least * of_query > 8 * how.cache)
    return {most, std::max<int64_t>(1, how.cache / 2 / (most * of_key * chunk)) * chunk};
  // Of more keys more queries, since each tile runs through all keys and their gradients.
  return {how.most_keys <= 1024 ? least : std::clamp(4 * how.cache / of_query / 8 * 8, least, most), all};
}

// How the numbers of a tile of queries lie: of a query chunk after chunk of keys, in it head after head, so that a
// chunk of all heads, which is mixed, is in one place.
struct Layout {
  int64_t heads, chunks;  // chunks of all keys
  int64_t rows, span;     // queries at once, keys at once
  int64_t dk, dv;
  Layout(const MixedAttention& how, const TileSize& size)
      : heads(std::max(how.in, how.out)),
        chunks(chunks_of(how.keys)),
        rows(size.rows),
        span(size.span),
        dk(padded(how.key_size)),
        dv(padded(how.value_size)) {}
  // A line more, so that queries are not a power of two apart.
  int64_t query() const { return heads * span + lanes; }
  int64_t tile() const { return rows * query(); }
  int64_t step() const { return heads * chunk; }  // from chunk to chunk
  int64_t keys() const { return chunks * chunk; }
  // A row of decisions, with what decide_range writes around it.
  int64_t decisions() const { return span + 2 * kDropoutGroup; }
};

// One query by itself, of all keys.
Layout of_few(const MixedAttention& how) { return {how, {1, chunks_of(how.keys) * chunk}}; }

bool takes_few(const MixedAttention& how) {
  return how.queries <= kFewQueries && !how.gradient && how.dropout == nullptr && how.relative == nullptr;
}

// Biases of relative positions are added in fp32, and stay so.
bool by_engine(const MixedAttention& how) { return how.bf16 != nullptr && how.relative == nullptr; }

int64_t decisions_scratch(const MixedAttention& how, const Layout& l) {
  return how.dropout != nullptr ? l.heads * l.decisions() : 0;
}
int64_t by_distance_scratch(const MixedAttention& how, const Layout& l) {
  return how.relative != nullptr ? l.rows * distances_of(l.span, l.rows) : 0;
}
int64_t positions_scratch(const MixedAttention& how, const Layout& l) {
  if (by_engine(how)) return l.rows * kEngineColumns / 2;  // what is rounded of a tile
  return how.relative != nullptr ? how.in * l.rows * l.dk + by_distance_scratch(how, l) : 0;
}

// What a level of vector instructions has.
template <class T>
struct Loops {
  decltype(&mixed_pack<T>) pack;
  decltype(&mixed_forward<T>) forward;
  decltype(&mixed_backward<T>) backward;
  decltype(&mixed_gather<T>) gather;
  decltype(&mixed_few_logits<T>) few_logits;
  decltype(&mixed_few_mix) few_mix;
  decltype(&mixed_few_values<T>) few_values;
};

// As functions of their own, not as clones of one that everything is inlined into, they take a minute less to compile.
namespace avx512 {
#define MH_TARGET MH_AVX512
using Tile = Large;
#include "cpu/mixed/loops.h"
#undef MH_TARGET
}  // namespace avx512
namespace avx2 {
#define MH_TARGET MH_AVX2
using Tile = Small;
#include "cpu/mixed/loops.h"
#undef MH_TARGET
}  // namespace avx2
namespace baseline {
#define MH_TARGET
using Tile = Small;
#include "cpu/mixed/loops.h"
#undef MH_TARGET
}  // namespace baseline

template <class T>
const Loops<T>& best_loops() {
  const Level used = level();
  return used >= Level::avx512 ? avx512::loops<T> : used == Level::avx2 ? avx2::loops<T> : baseline::loops<T>;
}

}  // namespace

int64_t mixed_attention_rows(const MixedAttention& how) { return tile_size(how).rows; }

int64_t mixed_key_floats(const MixedAttention& how) {
  return how.in * chunks_of(how.keys) * chunk * padded(how.key_size);
}
int64_t mixed_value_floats(const MixedAttention& how) {
  return how.out * chunks_of(how.keys) * chunk * padded(how.value_size);
}

int64_t mixed_pack_floats(const MixedAttention& how, bool backward) {
  return takes_few(how) ? 0 : (backward ? 2 : 1) * mixed_key_floats(how) + mixed_value_floats(how);
}

int64_t mixed_forward_scratch(const MixedAttention& how) {
  if (takes_few(how)) return mixed_few_floats(how);
  const Layout l(how, tile_size(how));
  return l.tile() + how.in * l.rows * l.dk + how.out * l.rows * l.dv + l.heads * chunk + padded(how.in * how.out) +
         2 * l.rows * how.in + padded(how.in) + decisions_scratch(how, l) + positions_scratch(how, l);
}
int64_t mixed_backward_scratch(const MixedAttention& how) {
  const Layout l(how, tile_size(how));
  return 2 * l.tile() + 3 * how.in * l.rows * l.dk + how.out * l.rows * l.dv + how.in * how.out * lanes +
         l.rows * how.in * how.out + 2 * l.heads * chunk + l.rows * how.in + padded(how.in * how.out) + padded(how.in) +
         decisions_scratch(how, l) + l.query() + positions_scratch(how, l);
}

bool mixed_takes_few(const MixedAttention& how) { return takes_few(how); }
int64_t mixed_few_floats(const MixedAttention& how) {
  const Layout l = of_few(how);
  return how.queries * l.query() + l.heads * chunk + padded(how.in * how.out) + 2 * how.in;
}
template <class T>
void mixed_few_logits(const MixedAttention& how, int64_t head, Heads<const T> q, Heads<const T> k, float* shared) {
  best_loops<T>().few_logits(how, head, q, k, shared);
}
void mixed_few_mix(const MixedAttention& how, const float* m, float* log_sums, float* shared) {
  best_loops<float>().few_mix(how, m, log_sums, shared);
}
template <class T>
void mixed_few_values(const MixedAttention& how, int64_t head, Heads<const T> v, Heads<T> out, float* shared) {
  best_loops<T>().few_values(how, head, v, out, shared);
}

template <class T>
void mixed_pack(const MixedAttention& how, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                float* packed) {
  best_loops<T>().pack(how, backward, head, k, v, packed);
}

template <class T>
void mixed_forward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, Heads<const T> k,
                   Heads<const T> v, const float* packed, const float* m, Heads<T> out, float* log_sums,
                   float* scratch) {
  best_loops<T>().forward(how, part, parts, q, k, v, packed, m, out, log_sums, scratch);
}

template <class T>
void mixed_backward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, const float* packed,
                    const float* m, Heads<const T> dout, const float* log_sums, Heads<T> dq, const MixedGradients& to,
                    float* scratch) {
  best_loops<T>().backward(how, part, parts, q, packed, m, dout, log_sums, dq, to, scratch);
}

template <class T>
void mixed_gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, T* to,
                  int64_t position) {
  best_loops<T>().gather(from, parts, step, length, size, to, position);
}

#define MH_MIXED(T)                                                                                                    \
  template void mixed_pack<T>(const MixedAttention&, bool, int64_t, Heads<const T>, Heads<const T>, float*);           \
  template void mixed_forward<T>(const MixedAttention&, int64_t, int64_t, Heads<const T>, Heads<const T>,              \
                                 Heads<const T>, const float*, const float*, Heads<T>, float*, float*);                \
  template void mixed_backward<T>(const MixedAttention&, int64_t, int64_t, Heads<const T>, const float*, const float*, \
                                  Heads<const T>, const float*, Heads<T>, const MixedGradients&, float*);              \
  template void mixed_gather<T>(const float*, int64_t, int64_t, int64_t, int64_t, T*, int64_t);                        \
  template void mixed_few_logits<T>(const MixedAttention&, int64_t, Heads<const T>, Heads<const T>, float*);           \
  template void mixed_few_values<T>(const MixedAttention&, int64_t, Heads<const T>, Heads<T>, float*);
MH_MIXED(float)
MH_MIXED(uint16_t)
#undef MH_MIXED

}  // namespace mh::kernels
