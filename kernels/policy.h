// What a fused attention may do, of one row of a batch: the kernels of every device read it, and so do the plain loops
// that tests compare them with. A stage says with it what it asks of the fused path.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dropout_plan.h"
#include "normaliser.h"

namespace mh::kernels {

// Keys that follow one another without a gap: `count` of them from key `first`. The distance of query t to key s among
// them is that of row `row` + queries - 1 - t + s - first of what stands for distances.
struct Run {
  int64_t first, count, row;
};

// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3): the logit of query t of head j and key s is
// scale * ((q + u_j) · k + (q + v_j) · r_j[distance]).
struct Relative {
  // Rows of zeros behind all distances, which products of whole tiles run into.
  static constexpr int64_t kBehind = 80;
  const float *u, *v;   // (heads, size), size a multiple of 16 with zeros behind
  const float* rows;    // r: (heads, distances, size), kBehind rows included
  const float* turned;  // each head's r transposed: (heads, size, distances)
  int64_t distances, size;
  const Run* runs;
  int64_t count;  // of runs, which are all keys in their order
};

struct Policy {
  int64_t queries, keys;  // without a key the result is zero
  float scale;            // of the logits
  bool causal;            // query i sees keys 0 … keys - queries + i; queries <= keys
  int64_t window = 0;     // causal: of these the last so many; 0: all
  Normaliser normaliser = Normaliser::softmax;
  const Relative* relative = nullptr;
  // Query head j reads the keys of head key_heads[j], head i of the result the values of head value_heads[i]; null:
  // those of its own number.
  const int64_t *key_heads = nullptr, *value_heads = nullptr;
  const float* head_scales = nullptr;  // what each head of the result is multiplied by; null: 1
  // A backward pass follows: logits are rounded as it will round them, from which it takes the probabilities again.
  bool gradient = true;
  // What is dropped of the probabilities, or null: that of query i and key j, of the head at hand, by element
  // dropout_first + i * dropout_row + j of the stream. dropout_row >= keys.
  const Dropout* dropout = nullptr;
  uint64_t dropout_first = 0;
  int64_t dropout_row = 0;

  constexpr int64_t key_head(int64_t j) const { return key_heads != nullptr ? key_heads[j] : j; }
  constexpr int64_t value_head(int64_t i) const { return value_heads != nullptr ? value_heads[i] : i; }
  float head_scale(int64_t i) const { return head_scales != nullptr ? head_scales[i] : 1; }
  // Query i sees the keys from first_seen to seen - 1.
  int64_t seen(int64_t i) const { return causal ? keys - queries + i + 1 : keys; }
  int64_t first_seen(int64_t i) const { return window > 0 ? std::max<int64_t>(0, seen(i) - window) : 0; }
};

}  // namespace mh::kernels
