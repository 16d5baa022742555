// Selects the positions of a batch row that are words. In a text all real (not padding) positions are words. In
// sentences (the rows of models with an encoder) the end-of-line token, which is the last token of the encoder's input,
// and the first token of the decoder's input (end of line or start token) are not words. They are left out because a
// head that has nothing to attend to puts its weight on such a token (Voita et al. 2019), and because the first query
// of a decoder can attend only to itself.
#pragma once

#include <algorithm>

#include "attention/lengths.h"

namespace mh::analysis {

struct WordRange {
  int64_t begin = 0, count = 0;  // the words are positions [begin, begin + count)
};

// Returns the positions of the words in batch row `row` of the encoder's or the decoder's input, which is padded to
// `num_positions`.
inline WordRange word_range_of(const attention::Lengths& lengths, bool is_in_encoder, int64_t row,
                               int64_t num_positions) {
  const at::Tensor& row_lengths = is_in_encoder ? lengths.encoder : lengths.decoder;
  const int64_t length =
      row_lengths.defined() ? std::min(num_positions, row_lengths[row].item<int64_t>()) : num_positions;
  if (!lengths.encoder.defined()) return {0, length};
  return {is_in_encoder ? 0 : 1, std::max<int64_t>(0, length - 1)};
}

// Returns whether the queries, or the keys, of a kind of attention come from the encoder's sequence.
inline bool has_encoder_queries(attention::AttentionKind kind) {
  return kind == attention::AttentionKind::encoder_self;
}
inline bool has_encoder_keys(attention::AttentionKind kind) { return kind != attention::AttentionKind::decoder_self; }

}  // namespace mh::analysis
