// Properties of a vocabulary that the input sequences of encoders need: the special tokens around texts, such as [CLS]
// and [SEP] of BERT or <s> and </s> of RoBERTa, the tokens that continue a word, and the bytes of a text that a token
// encodes. Vocabularies of the types wordpiece and tokenizer-json have these properties.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/wordpiece.h"

namespace mh::text {

// A row with one text is: begin_id, the text, separator_id. A row with two texts is: begin_id, the first text,
// num_pair_separators times separator_id, the second text, separator_id.
struct EncoderTokens {
  int32_t padding_id = -1, begin_id = -1, separator_id = -1, mask_id = -1;
  int64_t num_pair_separators = 1;  // 1 in BERT, 2 in RoBERTa
  // Whether models tell the two texts of a row apart by segments (model.bert.segments), as BERT does. RoBERTa and
  // ModernBERT, whose vocabularies have the type tokenizer-json, do not.
  bool has_segments = true;

  // Return the number of special tokens in a row with `num_texts` texts, 1 or 2, and the number of segments that a
  // model needs for it.
  int64_t num_special_tokens(int64_t num_texts) const { return num_texts == 1 ? 2 : 2 + num_pair_separators; }
  int64_t num_segments(int64_t num_texts) const { return has_segments ? num_texts : 0; }
};

// Returns the special tokens of a vocabulary of the type wordpiece, or of the type tokenizer-json with a post-processor
// that puts a token before and a token after a text, and with the special tokens <pad> and <mask>, or [PAD] and [MASK].
// Throws Error(input) for another vocabulary; `name` is its name in the message.
EncoderTokens encoder_tokens(const Tokenizer& tokenizer, const std::string& name);

// Returns, for each token, whether it continues a word: in a vocabulary of the type wordpiece, if its piece starts with
// ##; in a vocabulary of the type tokenizer-json, unless its piece starts with the mark of a space.
std::vector<bool> word_continuations(const Tokenizer& tokenizer);

// Appends the tokens of a text and the byte range of each token, without white space at both ends, and extended to
// whole characters. Returns false, and appends nothing, if the vocabulary does not state which bytes of the text each
// token encodes: byte-level vocabularies of the type tokenizer-json do for texts that normalisation does not change,
// vocabularies of the type wordpiece for every text. `encoder`: an encoder of the vocabulary.
bool encode_with_ranges(const Tokenizer& tokenizer, Encoder& encoder, std::string_view text,
                        std::vector<int32_t>& tokens, std::vector<TextRange>& ranges);

}  // namespace mh::text
