// Which positions of a row stand on words. Of a text, all real ones. Of sentences, which is what rows are where there
// is an encoder, the end-of-sentence symbol is none: a source ends with it, and a decoder's input begins with it. There
// heads rest that find nothing (Voita et al. 2019), and a decoder's first query sees itself alone.
#pragma once

#include <algorithm>

#include "attention/kind.h"

namespace mh::analysis {

struct Words {
  int64_t first = 0, count = 0;  // positions [first, first + count)
};

// Of a row of the encoder's side or the decoder's, `positions` wide.
inline Words words_of(const attention::Lengths& lengths, bool of_encoder, int64_t row, int64_t positions) {
  const at::Tensor& known = of_encoder ? lengths.encoder : lengths.decoder;
  const int64_t real = known.defined() ? std::min(positions, known[row].item<int64_t>()) : positions;
  if (!lengths.encoder.defined()) return {0, real};
  return {of_encoder ? 0 : 1, std::max<int64_t>(0, real - 1)};
}

// The sides that queries and keys are of.
inline bool queries_of_encoder(attention::Kind kind) { return kind == attention::Kind::encoder_self; }
inline bool keys_of_encoder(attention::Kind kind) { return kind != attention::Kind::decoder_self; }

}  // namespace mh::analysis
