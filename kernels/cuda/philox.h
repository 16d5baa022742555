// The random words that decide which elements dropout drops (dropout_params.h).
#pragma once

#include "cuda/fragment.h"
#include "dropout_params.h"

namespace mh::kernels {

struct PhiloxWords {
  uint32_t word[4];
};

// Returns the four words of Philox-4x32-10 at the counter (block, site, update).
MH_DEVICE PhiloxWords philox(const DropoutParams& params, uint64_t block) {
  const uint32_t update = params.update_ptr != nullptr ? *params.update_ptr : params.update;
  uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), params.site, update};
  uint32_t k0 = params.key[0], k1 = params.key[1];
  MH_FOR (round, 10) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, c[3] = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// Returns word i. Selects it by comparisons, so that the words stay in registers, which are not addressable.
MH_DEVICE uint32_t word_at(const PhiloxWords& words, unsigned i) {
  return i == 0 ? words.word[0] : i == 1 ? words.word[1] : i == 2 ? words.word[2] : words.word[3];
}

// Returns whether dropout keeps the element with this random word.
MH_DEVICE bool dropout_keeps(const DropoutParams& params, uint32_t word) { return word >> 8 >= params.threshold; }

}  // namespace mh::kernels
