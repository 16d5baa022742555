// Finds the added tokens of tokenizer.json in text, as Hugging Face tokenizers 0.22 does: from left to right, the
// longest token at each position.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/sorted_pieces.h"

namespace mh::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  // matches only between characters that are not part of words
  bool lstrip = false;       // includes the white space on the left
  bool rstrip = false;       // includes the white space on the right
  bool normalized = true;    // is searched in the normalised text
  bool special = false;      // a control token, which is not recognised in text
};

class AddedTokenMatcher {
 public:
  // Adds a token, with `pattern`, the text to find, which is not empty. Of equal patterns the first one applies.
  void add(std::string_view pattern, const AddedToken& token) {
    patterns_.add(pattern, static_cast<int32_t>(tokens_.size()));
    tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, token.special});
  }
  // Must follow the last add() and precede the first find().
  void sort() { patterns_.sort(); }
  bool empty() const { return tokens_.empty(); }

  // A part [begin, end) of a text: the token `id`, or with the id -1 text without added tokens.
  struct Part {
    size_t begin, end;
    int32_t id;
  };
  // Writes the parts of a text to `parts`. The text of a special token, and of a token with `single_word` inside a
  // word, counts as text without tokens, but find() finds no other token in it.
  void find(std::string_view text, std::vector<Part>& parts) const;

 private:
  // The settings of AddedToken that find() needs.
  struct Token {
    int32_t id;
    bool single_word, lstrip, rstrip, special;
  };
  SortedPieces patterns_;  // with the index of the token in `tokens_`
  std::vector<Token> tokens_;
};

}  // namespace mh::text
